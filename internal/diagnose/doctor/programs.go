package doctor

import (
	"fmt"
)

// otherPrograms looks for programs that see packets before the daemon's.
func otherPrograms(m *Machine) (out []Finding, err error) {
	for _, p := range m.Facts.Programs {
		if !p.Before {
			continue // it sees only packets that the data path has passed
		}
		out = append(out, Finding{
			About: p.Interface + "/" + p.Name, What: fmt.Sprintf("program %s runs before loxilb's at %s of %s", p.Name, p.Hook, p.Interface), Sure: Possible,
			Why: "packets that it drops, changes or redirects do not reach services", Command: "bpftool net show dev " + p.Interface,
		})
	}
	return out, nil
}

// duplicateVIPs checks whether another host has a VIP.
func duplicateVIPs(m *Machine) (out []Finding, err error) {
	links, err := m.Network.Links()
	if err != nil {
		return nil, err
	}
	list, err := m.Network.Neighbours()
	if err != nil {
		return nil, err
	}
	for _, vip := range m.Facts.VIPs {
		var at []string
		for _, l := range links {
			for _, a := range l.Addrs {
				if a == vip {
					at = append(at, l.Name)
				}
			}
		}
		if len(at) > 1 {
			out = append(out, Finding{
				About: vip.String(), What: fmt.Sprintf("VIP %s is on several interfaces: %s", vip, names(at)), Sure: Likely,
				Why: "each of them answers ARP for it, so clients might learn a wrong MAC address", Command: fmt.Sprintf("ip addr del %s dev %s", vip, at[len(at)-1]),
			})
		}
		for _, n := range list {
			if n.Addr == vip && n.Valid {
				out = append(out, Finding{
					About: vip.String() + "/" + n.MAC, What: fmt.Sprintf("another machine answered ARP for VIP %s: %s", vip, n.MAC), Sure: Likely,
					Why: "two machines have the same address: clients reach either of them", Command: "remove the address from the other machine, or make it a backup (loxicmd set hastate)",
				})
			}
		}
	}
	return out, nil
}

// HiddenTags is an interface for XDP whose driver removes VLAN tags from the frames that XDP sees.
type HiddenTags struct {
	Interface string
	Attached  bool // false: it has VLANs, so its packets use tc only
}

// hiddenTags reports interfaces whose drivers hide VLAN tags from XDP.
func hiddenTags(m *Machine) (out []Finding, err error) {
	for _, h := range m.Facts.HiddenTags {
		if on, known := m.Network.Feature(h.Interface, rxVLAN); known && !on {
			continue // changed since the facts were collected
		}
		sure, why := Certain, "XDP is not attached there: the interface has VLANs, whose tags XDP cannot see;"+
			" all packets take the slower path through tc"
		if h.Attached {
			sure, why = Possible, "XDP is attached there and cannot see VLAN tags: frames of VLANs without an interface in this"+
				" network namespace look untagged to it, if the card passes any"
		}
		out = append(out, feature(h.Interface, rxVLAN, false, sure, why))
	}
	return out, nil
}
