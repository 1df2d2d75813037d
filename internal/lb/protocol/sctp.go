package protocol

func sctp() Traits {
	return Traits{
		Word:         "sctp",
		HasPorts:     true,
		HasHandshake: true,
		Probe:        "sctp",
		States:       []string{"init", "init-ack", "cookie-echo", "est", "shut", "shut-ack", "shut-complete", "abort"},
		State:        sctpState,
	}
}

func sctpState(e Events) string {
	switch {
	case e.Reset:
		return "abort"
	case e.FinsAcked:
		return "shut-complete"
	case e.FinClient && e.FinEndpoint:
		return "shut-ack"
	case e.FinClient || e.FinEndpoint:
		return "shut"
	case e.Established:
		return "est"
	case e.Assured:
		return "cookie-echo"
	case e.Replied:
		return "init-ack"
	default:
		return "init"
	}
}
