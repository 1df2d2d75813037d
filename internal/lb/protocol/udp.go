package protocol

func udp() Traits {
	return Traits{
		Word:       "udp",
		HasPorts:   true,
		HasSockets: true,
		Probe:      "udp",
		States:     []string{"udp-uni", "udp-est"},
		State: func(e Events) string {
			if e.Replied {
				return "udp-est"
			}
			return "udp-uni"
		},
	}
}
