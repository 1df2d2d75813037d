package explain

import (
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// reasonFor returns why the program drops a packet, and the remedy. For a configured reason, it
// describes the service's configuration.
func reasonFor(name string, s *lb.Service) report.DropReason {
	r, known := report.DropReasonOf(name)
	if !known {
		r.Meaning = name
	}
	service := "the service"
	if s != nil {
		service = s.Key.String()
	}
	switch name {
	case "source-not-allowed":
		r.Remedy = "to allow it: add its address to --sources of " + service
	case "source-denied":
		r.Remedy = "to allow it: remove its address from --deny of " + service
	case "rate-limit":
		r.Remedy = "to allow it: raise --max-rate or --client-rate of " + service
	case "connection-limit":
		r.Remedy = "to allow it: raise --max-connections or --client-connections of " + service
	case "rule":
		r.Remedy = "to allow it: add a rule of higher preference that allows the packet, or delete this one (loxicmd get firewall)"
	case "policed":
		r.Remedy = "to allow it: raise the rate of the policer (loxicmd get policy)"
	}
	return r
}
