package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Announcement has the BGP settings of a service's VIPs. Zero values leave the choice to the role
// of the node.
type Announcement struct {
	Announce    Announce     // when the VIPs are announced
	MED         uint32       // routers prefer lower ones; 0: by the role
	LocalPref   uint32       // of iBGP routers, which prefer higher ones; 0: by the role
	Communities []Community  // at most MaxCommunities
	Prepend     uint8        // how many more times the AS path has this AS, up to MaxPrepend
	Aggregate   netip.Prefix // announced in place of the VIPs that it contains; invalid: each VIP by itself
}

// Limits of announcements. Longer AS paths are filtered by some networks.
const (
	MaxCommunities = 32
	MaxPrepend     = 16
)

// Announce is when a VIP is announced.
type Announce uint8

// The values of --bgp-announce.
const (
	AnnounceServing Announce = iota
	AnnounceAlways
)

func announces() []choice[Announce] {
	return []choice[Announce]{
		{AnnounceServing, "serving", "while an endpoint that is not known to be down takes new connections", ""},
		{AnnounceAlways, "always", "independent of the endpoints: clients get a refusal instead of no route", ""},
	}
}

// String returns the word of the choice.
func (a Announce) String() string { return wordOf("announce", a, announces()) }

// Community is a BGP community (RFC 1997): an AS number and a value of 16 bits each.
type Community uint32

// wellKnown has the communities with names (RFC 1997, 3765, 7999, 8326).
var wellKnown = [...]struct {
	community Community
	name      string
}{
	{0xffff0000, "graceful-shutdown"},
	{0xffff029a, "blackhole"},
	{0xffffff01, "no-export"},
	{0xffffff02, "no-advertise"},
	{0xffffff03, "no-export-subconfed"},
	{0xffffff04, "no-peer"},
}

// String returns the name of a well-known community, or AS:VALUE.
func (c Community) String() string {
	for _, w := range wellKnown {
		if w.community == c {
			return w.name
		}
	}
	return fmt.Sprintf("%d:%d", c>>16, c&0xffff)
}

// ParseCommunity parses AS:VALUE or a well-known name.
func ParseCommunity(field, s string) (Community, error) {
	names := make([]string, len(wellKnown))
	for i, w := range wellKnown {
		if w.name == s {
			return w.community, nil
		}
		names[i] = w.name
	}
	as, value, ok := strings.Cut(s, ":")
	high, highErr := strconv.ParseUint(as, 10, 16)
	low, lowErr := strconv.ParseUint(value, 10, 16)
	if !ok || highErr != nil || lowErr != nil {
		return 0, NewFieldError(field, s, "is not a community"+DidYouMean(s, names), "AS:VALUE of 0 to 65535 each, "+list(names))
	}
	return Community(high<<16 | low), nil
}

func parseCommunities(field string, text []string) ([]Community, error) {
	out := make([]Community, len(text))
	for i, s := range text {
		c, err := ParseCommunity(field, s)
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

// announcementFormat is the first record format with an Announcement.
const announcementFormat = contractFormat + 1

// bgpFields returns the fields of Announcement, and BGP.
func bgpFields() []Field[Service] {
	const first = 45 // position in a record
	return []Field[Service]{
		{
			Name: FieldBGP, Text: "bgp", Record: "bgp", Position: 44, Since: contractFormat,
			Property: "serviceArguments.bgp", Flag: "bgp",
			Help: "announce the VIPs by BGP",
			form: boolean(func(s *Service) *bool { return &s.BGP }),
		},
		{
			Name: FieldAnnounce, Text: "bgp-announce", Record: "bgpAnnounce", Position: first, Since: announcementFormat,
			Property: "serviceArguments.bgpAnnounce", Flag: "bgp-announce",
			Help: "with --bgp: when to announce the VIPs",
			form: word(func(s *Service) *Announce { return &s.Announce }, announces),
		},
		{
			Name: FieldMED, Text: "bgp-med", Record: "bgpMed", Position: first + 1, Since: announcementFormat,
			Property: "serviceArguments.bgpMed", Flag: "bgp-med",
			Help:    "with --bgp: MED of the routes: routers prefer the lowest; a BACKUP adds 10; 0 is by the role",
			Allowed: "0 (by the role) to 4294967295",
			form:    number(func(s *Service) *uint32 { return &s.MED }, 1<<32-1),
		},
		{
			Name: FieldLocalPref, Text: "bgp-local-pref", Record: "bgpLocalPref", Position: first + 2, Since: announcementFormat,
			Property: "serviceArguments.bgpLocalPref", Flag: "bgp-local-pref",
			Help:    "with --bgp: local preference: iBGP routers prefer the highest; a BACKUP announces at most 100; 0 is by the role",
			Allowed: "0 (by the role) to 4294967295",
			form:    number(func(s *Service) *uint32 { return &s.LocalPref }, 1<<32-1),
		},
		{
			Name: FieldCommunities, Also: FieldCommunity, Text: "bgp-communities", Record: "bgpCommunities", Position: first + 3, Since: announcementFormat,
			Property: "serviceArguments.bgpCommunities", Flag: "bgp-communities",
			Help: "with --bgp: communities of the routes, as 65000:100 or no-export",
			form: listOf(func(s *Service) *[]Community { return &s.Communities }, parseCommunities),
		},
		{
			Name: FieldPrepend, Text: "bgp-prepend", Record: "bgpPrepend", Position: first + 4, Since: announcementFormat,
			Property: "serviceArguments.bgpPrepend", Flag: "bgp-prepend",
			Help:    "with --bgp: how many more times the AS path begins with this node's AS: routers prefer shorter paths",
			Allowed: "0 to " + strconv.Itoa(MaxPrepend),
			form:    number(func(s *Service) *uint8 { return &s.Prepend }, MaxPrepend),
		},
		{
			Name: FieldAggregate, Text: "bgp-aggregate", Record: "bgpAggregate", Position: first + 5, Since: announcementFormat,
			Property: "serviceArguments.bgpAggregate", Flag: "bgp-aggregate",
			Help:    "with --bgp: announce this prefix instead of the VIPs that it contains",
			Allowed: aggregateAllowed,
			form:    prefix(func(s *Service) *netip.Prefix { return &s.Aggregate }),
		},
	}
}

const aggregateAllowed = "a prefix that contains the VIP, as 203.0.113.0/24"

// validateAnnouncement checks the settings of announcements.
func (s *Service) validateAnnouncement() error {
	if err := wordError(FieldAnnounce, s.Announce, announces()); err != nil {
		return err
	}
	switch p := s.Aggregate; {
	case len(s.Communities) > MaxCommunities:
		return NewFieldError(FieldCommunities, strconv.Itoa(len(s.Communities)), "are too many", "up to "+strconv.Itoa(MaxCommunities))
	case s.Prepend > MaxPrepend:
		return NewFieldError(FieldPrepend, strconv.Itoa(int(s.Prepend)), "is out of range", "0 to "+strconv.Itoa(MaxPrepend))
	case !p.IsValid():
	case p != p.Masked():
		return NewFieldError(FieldAggregate, p.String(), "has bits after its length", p.Masked().String())
	case p.Bits() == 0:
		return NewFieldError(FieldAggregate, p.String(), "is the default route", aggregateAllowed)
	case !p.Contains(s.VIP):
		return NewFieldError(FieldAggregate, p.String(), "does not contain the VIP "+s.VIP.String(), aggregateAllowed)
	}
	seen := make([]Community, 0, len(s.Communities))
	for _, c := range s.Communities {
		if slices.Contains(seen, c) {
			return NewFieldError(FieldCommunity, c.String(), "is given twice", "each once")
		}
		seen = append(seen, c)
	}
	return nil
}

// ineffectiveAnnouncement lists settings of the announcement that change nothing without BGP.
func (s *Service) ineffectiveAnnouncement() (list []IneffectiveSetting) {
	if s.BGP {
		return nil
	}
	for _, f := range bgpFields() {
		if !f.IsDefault(s) {
			list = append(list, IneffectiveSetting{f.Name, "the VIPs of " + s.Key.String() + " are not announced without bgp"})
		}
	}
	return list
}

// AnnouncedPrefixes lists the prefixes that a service with BGP announces: its VIPs, or an aggregate
// instead of the VIPs that it contains. Source addresses are not announced: each node needs the
// answers to its own.
func (s *Service) AnnouncedPrefixes() (list []netip.Prefix) {
	if !s.BGP || s.VIP.IsUnspecified() {
		return nil
	}
	for _, a := range append([]netip.Addr{s.VIP}, s.Secondary...) {
		p := netip.PrefixFrom(a, a.BitLen())
		if s.Aggregate.IsValid() && s.Aggregate.Contains(a) {
			p = s.Aggregate
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}
