package reconcile

import (
	"errors"

	"loxilb/internal/config"
	"loxilb/internal/kernel/netdev"
)

// Why XDP stays away from an interface with VLANs (docs/adr/0073-vlan-tags-and-xdp.md).
var (
	errTagged = errors.New("it has VLAN interfaces, whose frames generic XDP would send on with their tag")
	errHidden = errors.New("it has VLAN interfaces, and its driver takes their tags out of the frames," +
		" where XDP does not see them (to leave them in: ethtool -K INTERFACE rxvlan off)")
	errTagsOutOfBand = errors.New("it has VLAN interfaces, and a veth carries their tags beside the frames, where XDP does not see them")
)

// HiddenTags is an interface where XDP is wanted, and whose driver removes VLAN tags from the
// frames that XDP sees.
type HiddenTags struct {
	Interface string
	Attached  bool // false: it has VLANs, so its packets take the way through tc alone
}

// HiddenTags lists the interfaces of the last Sync. It is safe for concurrent use.
func (x *XDP) HiddenTags() []HiddenTags { return *x.hidden.Load() }

// refuseTags returns why the program must not be attached to an interface that receives frames of
// VLANs. Without the tag, a frame of a VLAN looks like one of the interface itself: XDP would
// challenge its sender outside the VLAN, and let it into connections of others.
func (x *XDP) refuseTags(l netdev.Link, hidden, tagged bool) error {
	switch {
	case !tagged || x.Choice != config.XDPGeneric && !hidden:
		return nil
	case x.Choice == config.XDPGeneric:
		return errTagged
	case l.Kind == "veth":
		return errTagsOutOfBand
	}
	return errHidden
}

// tagged returns the interfaces that receive frames of VLANs: those that have VLAN interfaces, and
// the ports of bonds and bridges that have some.
func tagged(links []netdev.Link) map[int]bool {
	out, byIndex := map[int]bool{}, make(map[int]netdev.Link, len(links))
	for _, l := range links {
		byIndex[l.Index] = l
		if l.Kind == "vlan" && !l.PeerElsewhere {
			out[l.PeerIndex] = true
		}
	}
	for _, l := range links {
		for m, depth := l, 0; m.Master != 0 && depth < maxMasters; depth++ {
			m = byIndex[m.Master]
			out[l.Index] = out[l.Index] || out[m.Index]
		}
	}
	return out
}

// maxMasters is how many interfaces may be above one another: Linux has eight at most.
const maxMasters = 8
