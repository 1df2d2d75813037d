package protocol

func tcp() Traits {
	return Traits{
		Word:         "tcp",
		HasPorts:     true,
		HasHandshake: true,
		HasSockets:   true,
		Probe:        "tcp",
		States:       []string{"sync-sent", "sync-ack", "est", "fini", "closed-wait", "closed"},
		State:        tcpState,
	}
}

func tcpState(e Events) string {
	switch {
	case e.Reset || e.FinsAcked:
		return "closed"
	case e.FinClient && e.FinEndpoint:
		return "closed-wait"
	case e.FinClient || e.FinEndpoint:
		return "fini"
	case e.Assured:
		return "est"
	case e.Replied:
		return "sync-ack"
	default:
		return "sync-sent"
	}
}
