package kinds

import (
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb/bgp"
)

// BGPSet registers sets that conditions of BGP policies refer to.
func BGPSet() *Kind[bgp.DefinedSet, v1.BgpDefinedSet] {
	stored := asJSONOf(bgp.DefinedSet.Key, bgp.DefinedSet.Validate, func(d bgp.DefinedSet) bgp.DefinedSet {
		d.Members, d.Prefixes = slices.Clone(d.Members), slices.Clone(d.Prefixes)
		return d
	})
	stored.Max, stored.Plural = 1024, "sets of BGP policies"
	return &Kind[bgp.DefinedSet, v1.BgpDefinedSet]{
		Words:  Words{Name: BGPSetName, Document: "BGPDefinedSet", Command: "bgpset", List: "definedsetsAttr", Exported: true, Verified: true},
		Stored: stored,
		API: API[bgp.DefinedSet, v1.BgpDefinedSet]{
			Path: "/config/bgp/policy/definedsets", ObjectPath: "/{defineset_type}/{type_name}", Read: readSet, Show: showSet,
		},
		CLI: CLI[v1.BgpDefinedSet]{
			Texts: Texts{Singular: "a set for conditions of BGP policies", Plural: "sets of BGP policies", Argument: "TYPE/NAME", Sample: "prefix/vips", Create: " --prefix=20.20.20.0/24:32..32"},
			Name:  func(d *v1.BgpDefinedSet) string { return d.DefinedType + "/" + d.Name },
			Set: func(d *v1.BgpDefinedSet, name string) {
				d.DefinedType, d.Name, _ = strings.Cut(name, "/")
			},
			Flags: []Flag[*v1.BgpDefinedSet]{
				{Name: "prefix", Usage: "a prefix of a set of type prefix, such as 10.0.0.0/8, or with lengths 10.0.0.0/8:24..32; may be repeated", Set: func(d *v1.BgpDefinedSet, value string) error {
					d.PrefixList = append(d.PrefixList, prefixFlag(value))
					return nil
				}},
				{Name: "member", Usage: "a member of a set of type neighbor, community, extcommunity, aspath or largecommunity: an address, a community, or a regular expression; repeat it for more", Set: func(d *v1.BgpDefinedSet, value string) error {
					d.List = append(d.List, value)
					return nil
				}},
			},
			Columns: []Column[*v1.BgpDefinedSet]{
				{Header: "Type", Cell: func(d *v1.BgpDefinedSet) string { return d.DefinedType }},
				{Header: "Name", Cell: func(d *v1.BgpDefinedSet) string { return d.Name }},
				{Header: "Members", Cell: setCell},
			},
		},
	}
}

// prefixFlag returns a prefix with a range of lengths after the last colon, if two dots are there.
func prefixFlag(value string) v1.BgpPrefix {
	if i := strings.LastIndexByte(value, ':'); i >= 0 && strings.Contains(value[i:], "..") {
		return v1.BgpPrefix{IpPrefix: value[:i], MasklengthRange: value[i+1:]}
	}
	return v1.BgpPrefix{IpPrefix: value}
}

// setCell has a line for each member.
func setCell(d *v1.BgpDefinedSet) string {
	lines := slices.Clone(d.List)
	for _, p := range d.PrefixList {
		lines = append(lines, strings.TrimSpace(p.IpPrefix+" "+p.MasklengthRange))
	}
	return strings.Join(lines, "\n")
}

func readSet(body *v1.BgpDefinedSet) (d bgp.DefinedSet, err error) {
	d = bgp.DefinedSet{Name: body.Name, Members: body.List}
	for _, p := range body.PrefixList {
		d.Prefixes = append(d.Prefixes, bgp.PrefixRule{Prefix: p.IpPrefix, Lengths: p.MasklengthRange})
	}
	d.Type, err = bgp.ParseSetType(body.DefinedType)
	return d, err
}

func showSet(d *bgp.DefinedSet) *v1.BgpDefinedSet {
	out := &v1.BgpDefinedSet{DefinedType: string(d.Type), Name: d.Name, List: slices.Clone(d.Members)}
	for _, p := range d.Prefixes {
		out.PrefixList = append(out.PrefixList, v1.BgpPrefix{IpPrefix: p.Prefix, MasklengthRange: p.Lengths})
	}
	return out
}
