package mirror

import (
	"net/netip"
	"slices"
)

// AnsweringLinks returns the links, by index, that receive the ARP requests of an address's
// neighbours: links whose connected network contains it, and links below them. It returns none if
// the address is in no connected network.
func (m *Mirror) AnsweringLinks(a netip.Addr) []int {
	var out []int
	for _, l := range m.OnLink(a) {
		if l.Resolves() {
			out = m.appendDown(out, l)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// appendDown appends a link, and the links below it that get its frames first. A VLAN is missing,
// as its frames have a tag there, and so is a bridge, whose ports forward all requests.
func (m *Mirror) appendDown(out []int, l Link) []int {
	out = append(out, l.Index)
	switch l.Kind {
	case "bond", "team":
		for _, port := range m.Links() {
			if port.Master == l.Index {
				out = append(out, port.Index)
			}
		}
	case "macvlan", "macvtap", "ipvlan", "ipvtap":
		if below := m.Link(l.PeerIndex); !l.PeerElsewhere && below.Index != 0 {
			out = m.appendDown(out, below)
		}
	}
	return out
}
