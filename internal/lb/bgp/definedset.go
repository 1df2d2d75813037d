package bgp

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// A DefinedSet is a named list that conditions of policies refer to, as in OpenConfig's routing
// policy.
type DefinedSet struct {
	Type     SetType      `json:"type"`
	Name     string       `json:"name"`               // unique among sets of its type
	Members  []string     `json:"members,omitempty"`  // of all types but prefix: addresses or patterns
	Prefixes []PrefixRule `json:"prefixes,omitempty"` // of type prefix
}

// SetType is the type of a DefinedSet, in the API's form.
type SetType string

// The types of sets.
const (
	PrefixSet         SetType = "prefix"
	NeighborSet       SetType = "neighbor"
	CommunitySet      SetType = "community"
	ExtCommunitySet   SetType = "extcommunity"
	ASPathSet         SetType = "aspath"
	LargeCommunitySet SetType = "largecommunity"
)

// PrefixRule matches prefixes within Prefix whose length is in a range such as "24..32".
type PrefixRule struct {
	Prefix  string `json:"ipPrefix"`
	Lengths string `json:"masklengthRange,omitempty"` // "": exactly the length of Prefix
}

// Names of fields in errors, as in the API.
const (
	FieldSetType  = "definedType"
	FieldSetName  = "name"
	FieldMembers  = "List"
	FieldPrefixes = "prefixList"
)

const (
	maxMembers    = 65536
	maxMemberSize = 256 // characters of a pattern
)

// setTypes are all types of sets.
func setTypes() []string {
	return []string{
		string(PrefixSet), string(NeighborSet), string(CommunitySet), string(ExtCommunitySet), string(ASPathSet), string(LargeCommunitySet),
	}
}

// ParseSetType parses the type of a set, in any case.
func ParseSetType(text string) (SetType, error) {
	if word := strings.ToLower(text); slices.Contains(setTypes(), word) {
		return SetType(word), nil
	}
	return "", lb.NewFieldError(FieldSetType, text, "is not a type of set"+lb.DidYouMean(text, setTypes()), strings.Join(setTypes(), ", "))
}

// Key returns the type and the name: sets of two types may share a name.
func (d DefinedSet) Key() string { return string(d.Type) + "/" + d.Name }

// Validate checks all fields.
func (d DefinedSet) Validate() error {
	if _, err := ParseSetType(string(d.Type)); err != nil {
		return err
	}
	if err := validateName(FieldSetName, d.Name); err != nil {
		return err
	}
	if d.Type == PrefixSet {
		return d.validatePrefixes()
	}
	switch {
	case len(d.Prefixes) > 0:
		return lb.NewFieldError(FieldPrefixes, d.Prefixes[0].Prefix, "is not allowed in a set of type "+string(d.Type), "List")
	case len(d.Members) == 0:
		return lb.NewFieldError(FieldMembers, "", "is missing or empty", "members of a set of type "+string(d.Type))
	case len(d.Members) > maxMembers:
		return lb.NewFieldError(FieldMembers, strconv.Itoa(len(d.Members)), "is too many", "up to "+strconv.Itoa(maxMembers))
	}
	for _, member := range d.Members {
		if err := validateMember(FieldMembers, d.Type, member); err != nil {
			return err
		}
	}
	return nil
}

func (d *DefinedSet) validatePrefixes() error {
	switch {
	case len(d.Members) > 0:
		return lb.NewFieldError(FieldMembers, d.Members[0], "is not allowed in a set of type prefix", FieldPrefixes)
	case len(d.Prefixes) == 0:
		return lb.NewFieldError(FieldPrefixes, "", "is missing or empty", "prefixes, as in 10.0.0.0/8")
	case len(d.Prefixes) > maxMembers:
		return lb.NewFieldError(FieldPrefixes, strconv.Itoa(len(d.Prefixes)), "is too many", "up to "+strconv.Itoa(maxMembers))
	}
	first := true
	var four bool
	for _, rule := range d.Prefixes {
		p, err := rule.validate()
		if err != nil {
			return err
		}
		if !first && p.Addr().Is4() != four {
			return lb.NewFieldError(FieldPrefixes+".ipPrefix", rule.Prefix, "is of another IP version than the others", "one set for each IP version")
		}
		first, four = false, p.Addr().Is4()
	}
	return nil
}

func (r PrefixRule) validate() (netip.Prefix, error) {
	p, err := netip.ParsePrefix(r.Prefix)
	switch {
	case err != nil:
		return p, lb.NewFieldError(FieldPrefixes+".ipPrefix", r.Prefix, "is not a prefix", "an IPv4 or IPv6 prefix, as in 10.0.0.0/8")
	case p != p.Masked():
		return p, lb.NewFieldError(FieldPrefixes+".ipPrefix", r.Prefix, "has bits after its length", p.Masked().String())
	case r.Lengths == "":
		return p, nil
	}
	least, most, found := strings.Cut(r.Lengths, "..")
	from, err1 := strconv.ParseUint(least, 10, 8)
	to, err2 := strconv.ParseUint(most, 10, 8)
	if !found || err1 != nil || err2 != nil || from > to || int(from) < p.Bits() || int(to) > p.Addr().BitLen() {
		bits, longest := strconv.Itoa(p.Bits()), strconv.Itoa(p.Addr().BitLen())
		return p, lb.NewFieldError(FieldPrefixes+".masklengthRange", r.Lengths, "is not a range of lengths of "+r.Prefix,
			"FROM..TO within "+bits+".."+longest)
	}
	return p, nil
}

// validateMember checks a member of a set, or a community that an action sets.
func validateMember(field string, kind SetType, member string) error {
	if member == "" || len(member) > maxMemberSize {
		return lb.NewFieldError(field, member, "is empty or too long", "1 to "+strconv.Itoa(maxMemberSize)+" characters")
	}
	pattern := member
	switch kind {
	case NeighborSet:
		if addr, err := netip.ParseAddr(member); err == nil && addr.Zone() == "" {
			return nil
		}
		if _, err := netip.ParsePrefix(member); err != nil {
			return lb.NewFieldError(field, member, "is not an address or prefix", "IPv4 or IPv6 addresses and prefixes")
		}
		return nil
	case ExtCommunitySet:
		subtype, rest, found := strings.Cut(member, ":")
		if pattern = rest; !found || !slices.Contains([]string{"rt", "soo", "encap", "lb"}, strings.ToLower(subtype)) {
			return lb.NewFieldError(field, member, "is not an extended community", "rt, soo, encap or lb, as in rt:65000:100")
		}
	case ASPathSet:
		pattern = strings.ReplaceAll(member, "_", "(^|[,{}() ]|$)") // as the speaker reads it
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return lb.NewFieldError(field, member, "is neither a value nor a regular expression", "values such as 65000:100, or regular expressions")
	}
	return nil
}
