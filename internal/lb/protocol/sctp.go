package protocol

func sctp() Traits {
	return Traits{
		Word:     "sctp",
		Instead:  "IPVS (ipvsadm --sctp-service) balances SCTP",
		HasPorts: true,
		Probe:    "tcp",
	}
}
