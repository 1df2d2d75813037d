package doctor

// HiddenTags is an interface where XDP is wanted, and whose driver takes VLAN tags out of the
// frames that XDP sees.
type HiddenTags struct {
	Interface string
	Attached  bool // false: it has VLANs, so its packets take the way through tc alone
}

// hiddenTags looks for drivers that keep VLAN tags from XDP.
func hiddenTags(m *Machine) (out []Finding, err error) {
	for _, h := range m.Facts.HiddenTags {
		if on, known := m.Network.Feature(h.Interface, rxVLAN); known && !on {
			continue // switched a moment ago
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
