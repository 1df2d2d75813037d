package bgp

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// A Policy is a list of statements; the first whose conditions match decides about a route.
type Policy struct {
	Name       string      `json:"name"`
	Statements []Statement `json:"statements,omitempty"`
}

// A Statement applies its actions to routes that meet all of its conditions.
type Statement struct {
	Name       string     `json:"name"`
	Conditions Conditions `json:"conditions,omitzero"`
	Actions    Actions    `json:"actions,omitzero"`
}

// SetMatch is the comparison of routes with a DefinedSet: "any", "all" or "invert".
type SetMatch struct {
	Set   string `json:"set,omitempty"`
	Match string `json:"match,omitempty"`
}

// Conditions that routes must meet. Zero: all routes do.
type Conditions struct {
	Prefix         SetMatch `json:"prefix,omitzero"`
	Neighbor       SetMatch `json:"neighbor,omitzero"`
	Families       []string `json:"families,omitempty"` // "ipv4-unicast", "ipv6-unicast"
	ASPathLength   Length   `json:"asPathLength,omitzero"`
	ASPath         SetMatch `json:"asPath,omitzero"`
	Community      SetMatch `json:"community,omitzero"`
	ExtCommunity   SetMatch `json:"extCommunity,omitzero"`
	LargeCommunity SetMatch `json:"largeCommunity,omitzero"`
	NextHops       []string `json:"nextHops,omitempty"`
	RPKI           string   `json:"rpki,omitempty"`
	RouteType      string   `json:"routeType,omitempty"` // "internal", "external" or "local"
}

// Length compares the length of an AS path: operator "eq", "ge" or "le".
type Length struct {
	Operator string `json:"operator,omitempty"`
	Value    uint32 `json:"value,omitempty"`
}

// Actions change the routes that match, and accept or reject them.
type Actions struct {
	Disposition    string       `json:"disposition,omitempty"` // "accept-route" or "reject-route"; "": the next statement decides
	MED            string       `json:"med,omitempty"`         // "100", "+50" or "-50"
	NextHop        string       `json:"nextHop,omitempty"`     // an address, or "self"
	LocalPref      uint32       `json:"localPref,omitempty"`
	Community      SetCommunity `json:"community,omitzero"`
	ExtCommunity   SetCommunity `json:"extCommunity,omitzero"`
	LargeCommunity SetCommunity `json:"largeCommunity,omitzero"`
	Prepend        Prepend      `json:"prepend,omitzero"`
}

// SetCommunity adds, removes or replaces communities: options "add", "remove" or "replace".
type SetCommunity struct {
	Option string   `json:"option,omitempty"`
	Values []string `json:"values,omitempty"`
}

// Prepend repeats an AS in front of the path: a number, or "last-as".
type Prepend struct {
	AS     string `json:"as,omitempty"`
	Repeat uint8  `json:"repeat,omitempty"`
}

// Names of fields in errors, as in the API. Fields of a statement follow its index:
// "statements[0].conditions.matchPrefixSet".
const (
	FieldStatements = "statements"
	fieldPolicyName = "name"
)

// Words of statements, in the existing loxilb's spelling.
const (
	MatchAny    = "any"
	MatchAll    = "all"
	MatchInvert = "invert"

	Accept = "accept-route"
	Reject = "reject-route"

	Add     = "add"
	Remove  = "remove"
	Replace = "replace"
)

const (
	lastAS        = "last-as" // prepends the AS that the path begins with
	maxStatements = 1024
)

// Key returns the name.
func (p Policy) Key() string { return p.Name }

// Validate checks all fields. The sets that statements refer to need not exist yet.
func (p Policy) Validate() error {
	if err := validateName(fieldPolicyName, p.Name); err != nil {
		return err
	}
	if len(p.Statements) > maxStatements {
		return lb.NewFieldError(FieldStatements, strconv.Itoa(len(p.Statements)), "is too many", "up to "+strconv.Itoa(maxStatements))
	}
	names := map[string]bool{}
	for i := range p.Statements {
		s := &p.Statements[i]
		at := FieldStatements + "[" + strconv.Itoa(i) + "]."
		if err := validateName(at+"name", s.Name); err != nil {
			return err
		}
		if names[s.Name] {
			return lb.NewFieldError(at+"name", s.Name, "is the name of another statement", "a name of its own for each")
		}
		names[s.Name] = true
		if err := s.Conditions.validate(at + "conditions."); err != nil {
			return err
		}
		if err := s.Actions.validate(at + "actions."); err != nil {
			return err
		}
	}
	return nil
}

// A SetRef refers to a DefinedSet by its type and name.
type SetRef struct {
	Type SetType
	Name string
}

// Key returns the key of the set.
func (r SetRef) Key() string { return DefinedSet{Type: r.Type, Name: r.Name}.Key() }

// Sets returns the sets that the policy refers to, in the order of its statements.
func (p Policy) Sets() (refs []SetRef) {
	for i := range p.Statements {
		for _, m := range p.Statements[i].Conditions.matches() {
			if m.Set != "" {
				refs = append(refs, SetRef{m.kind, m.Set})
			}
		}
	}
	return refs
}

// match is a condition that compares routes with a set.
type match struct {
	SetMatch
	kind  SetType
	field string
	all   bool // "all" is possible: a route has several values
}

func (c *Conditions) matches() []match {
	return []match{
		{c.Prefix, PrefixSet, "matchPrefixSet", false},
		{c.Neighbor, NeighborSet, "matchNeighborSet", false},
		{c.ASPath, ASPathSet, "bgpConditions.matchAsPathSet", true},
		{c.Community, CommunitySet, "bgpConditions.matchCommunitySet", true},
		{c.ExtCommunity, ExtCommunitySet, "bgpConditions.matchExtCommunitySet", true},
		{c.LargeCommunity, LargeCommunitySet, "bgpConditions.matchLargeCommunitySet", true},
	}
}

func (c *Conditions) validate(at string) error {
	for _, m := range c.matches() {
		words := []string{MatchAny, MatchInvert}
		if m.all {
			words = []string{MatchAny, MatchAll, MatchInvert}
		}
		switch {
		case m.Set == "" && m.Match != "":
			return lb.NewFieldError(at+m.field, m.Match, "has no set", "the name of a set of type "+string(m.kind))
		case m.Set == "":
		case m.Match != "" && !slices.Contains(words, m.Match):
			return lb.NewFieldError(at+m.field, m.Match, "is not a way to match"+lb.DidYouMean(m.Match, words), strings.Join(words, ", "))
		}
		if m.Set != "" {
			if err := validateName(at+m.field, m.Set); err != nil {
				return err
			}
		}
	}
	if err := oneOf(at+"bgpConditions.afiSafiIn", c.Families, "ipv4-unicast", "ipv6-unicast"); err != nil {
		return err
	}
	for _, hop := range c.NextHops {
		if addr, err := netip.ParseAddr(hop); err != nil || addr.Zone() != "" {
			if _, err := netip.ParsePrefix(hop); err != nil {
				return lb.NewFieldError(at+"bgpConditions.nextHopInList", hop, "is not an address or prefix", "IPv4 or IPv6 addresses and prefixes")
			}
		}
	}
	if l := c.ASPathLength; l != (Length{}) {
		if err := oneOf(at+"bgpConditions.asPathLength.operator", []string{l.Operator}, "eq", "ge", "le"); err != nil {
			return err
		}
	}
	if err := oneOf(at+"bgpConditions.rpki", nonEmpty(c.RPKI), "valid", "invalid", "not-found"); err != nil {
		return err
	}
	return oneOf(at+"bgpConditions.routeType", nonEmpty(c.RouteType), "internal", "external", "local")
}

func (a *Actions) validate(at string) error {
	if err := oneOf(at+"routeDisposition", nonEmpty(a.Disposition), Accept, Reject); err != nil {
		return err
	}
	at += "bgpActions."
	if a.MED != "" {
		number := a.MED
		if strings.ContainsAny(number[:1], "+-") {
			number = number[1:]
		}
		if _, err := strconv.ParseUint(number, 10, 32); err != nil {
			return lb.NewFieldError(at+"setMed", a.MED, "is not a metric", "0 to 4294967295, +N or -N")
		}
	}
	if a.NextHop != "" && a.NextHop != "self" && a.NextHop != "unchanged" && a.NextHop != "peer-address" {
		if addr, err := netip.ParseAddr(a.NextHop); err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
			return lb.NewFieldError(at+"setNextHop", a.NextHop, "is not a next hop", "an IP address, self, unchanged or peer-address")
		}
	}
	for _, c := range []struct {
		field string
		set   SetCommunity
		kind  SetType
	}{
		{"setCommunity", a.Community, CommunitySet}, {"setExtCommunity", a.ExtCommunity, ExtCommunitySet},
		{"setLargeCommunity", a.LargeCommunity, LargeCommunitySet},
	} {
		if err := c.set.validate(at+c.field, c.kind); err != nil {
			return err
		}
	}
	return a.Prepend.validate(at + "setAsPathPrepend.")
}

func (s *SetCommunity) validate(at string, kind SetType) error {
	if s.Option == "" && len(s.Values) == 0 {
		return nil
	}
	if err := oneOf(at+".options", []string{s.Option}, Add, Remove, Replace); err != nil {
		return err
	}
	validate := validateValue
	if s.Option == Remove {
		validate = validateMember // also patterns
	}
	for _, value := range s.Values {
		if err := validate(at+".setCommunityMethod", kind, value); err != nil {
			return err
		}
	}
	return nil
}

func (p *Prepend) validate(at string) error {
	switch {
	case p.AS == "" && p.Repeat == 0:
		return nil
	case p.Repeat == 0:
		return lb.NewFieldError(at+"repeatN", "0", "repeats nothing", "1 to 255")
	case p.AS == lastAS:
		return nil
	}
	if n, err := strconv.ParseUint(p.AS, 10, 32); err != nil || n == 0 {
		return lb.NewFieldError(at+"as", p.AS, "is not an AS number", "1 to 4294967295, or "+lastAS)
	}
	return nil
}

// oneOf refuses values other than these words.
func oneOf(field string, values []string, words ...string) error {
	for _, value := range values {
		if !slices.Contains(words, value) {
			return lb.NewFieldError(field, value, "is not known"+lb.DidYouMean(value, words), strings.Join(words, ", "))
		}
	}
	return nil
}

// nonEmpty returns a list of the value, without it if it is empty.
func nonEmpty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// validateName checks a name that paths of the API contain.
func validateName(field, name string) error {
	if name == "" {
		return lb.NewFieldError(field, "", "is missing", "a name")
	}
	return lb.ValidateName(field, name)
}
