package lb

import "unicode/utf8"

// contractFormat is the first record format with two things that clients of the contract need and
// earlier builds refused: the member bgp, and services that were not allowed.
const contractFormat = closingFormat + 2

// bgpFields has the field that requests BGP.
func bgpFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldBGP, Text: "bgp", Record: "bgp", Place: 44, Since: contractFormat,
		Property: "serviceArguments.bgp", Flag: "bgp",
		Help: "advertise the VIP by BGP (stored, without effect yet)",
		form: boolean(func(s *Service) *bool { return &s.BGP }),
	}}
}

// contractNeeds returns the first record format whose builds accept such a service.
func (s *Service) contractNeeds() int {
	later := s.egressByRules() || utf8.RuneCountInString(s.Name) > firstNameLength || s.Mode.TranslatesSource() && !s.Protocol.hasPorts()
	if s.Mode == ModeFullNAT && len(s.SNAT) == 0 {
		for _, e := range s.Endpoints {
			later = later || s.Translates(e)
		}
	}
	if later {
		return contractFormat
	}
	return firstRecordFormat
}

// firstNameLength is how long names could be before.
const firstNameLength = 128

// Condition is something that users should know about a working service.
type Condition struct {
	Type    string // the subject, in one word
	Message string // one sentence
}

// Conditions returns the conditions that follow from the service's settings.
func (s *Service) Conditions() (list []Condition) {
	if s.BGP {
		list = append(list, Condition{"BGP", "the VIP is to be advertised by BGP, and is not: BGP is not part of this build"})
	}
	if s.Egress && !s.GivesSource() {
		list = append(list, Condition{"Egress", "connections of its endpoints leave with their own addresses, unless a firewall rule gives them a source: the service has no address for that"})
	}
	return list
}
