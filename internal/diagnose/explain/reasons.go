package explain

import (
	"loxilb/internal/kernel/dropreason"
	"loxilb/internal/lb"
)

// reasonFor is why the program drops a packet, and what mends it. Where that is up to who has configured it, the words are of the service.
func reasonFor(name string, s *lb.Service) dropreason.Reason {
	r, known := dropreason.Of(name)
	if !known {
		r.Meaning = name
	}
	service := "the service"
	if s != nil {
		service = s.Key.String()
	}
	switch name {
	case "source-not-allowed":
		r.Remedy = "if it is to connect: have its address in --sources of " + service
	case "source-denied":
		r.Remedy = "if it is to connect: take its address out of --deny of " + service
	case "rate-limit":
		r.Remedy = "if it is to connect: raise --max-rate or --client-rate of " + service
	case "connection-limit":
		r.Remedy = "if it is to connect: raise --max-connections or --client-connections of " + service
	case "rule":
		r.Remedy = "if it is to pass: a rule that comes before it and allows the packet, or none of this kind (loxicmd get firewall)"
	case "policed":
		r.Remedy = "if it is to pass: raise the rate of the policer (loxicmd get policy)"
	}
	return r
}
