package lb

import "unicode/utf8"

// contractFormat is the first format of records with what clients of the contract need, and builds
// before refused: a member, and services that were not allowed.
const contractFormat = closingFormat + 2

// bgpFields has the one that asks for BGP.
func bgpFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldBGP, Text: "bgp", Record: "bgp", Place: 44, Since: contractFormat,
		Property: "serviceArguments.bgp", Flag: "bgp",
		Help: "advertise the VIP by BGP (stored, without effect yet)",
		form: boolean(func(s *Service) *bool { return &s.BGP }),
	}}
}

// contractNeeds is the first format of records whose builds take such a service.
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

// Condition is something that users should know of a service that works.
type Condition struct {
	Type    string // what it is about, in one word
	Message string // one sentence
}

// Conditions are those that the service has by what it asks for.
func (s *Service) Conditions() (list []Condition) {
	if s.BGP {
		list = append(list, Condition{"BGP", "the VIP is to be advertised by BGP, and is not: BGP is not part of this build"})
	}
	if s.Egress && !s.GivesSource() {
		list = append(list, Condition{"Egress", "connections of its endpoints leave with their own addresses, unless a firewall rule gives them a source: the service has no address for that"})
	}
	return list
}
