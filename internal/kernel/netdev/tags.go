package netdev

import "loxilb/internal/host/machine"

// HidesTags reports whether a link's driver removes VLAN tags from received frames, so that XDP
// does not see them. A veth passes the tag in metadata, whatever its offloads say. A driver that
// cannot be queried is assumed to.
func (n *Net) HidesTags(l Link) bool {
	const (
		getFlags = 0x25   // ETHTOOL_GFLAGS
		rxVLAN   = 1 << 8 // ETH_FLAG_RXVLAN
	)
	if l.Kind == "veth" {
		return true
	}
	var flags uint32
	err := n.ns.Do(func() (err error) {
		flags, err = machine.Ethtool(l.Name, getFlags, 0)
		return err
	})
	return err != nil || flags&rxVLAN != 0
}
