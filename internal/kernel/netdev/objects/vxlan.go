package objects

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/netobj"
)

// vxlanPort is the port of VXLAN, by RFC 7348.
const vxlanPort = 4789

// VXLANs is the kind of tunnels.
type VXLANs struct{ *Kernel }

// All returns the links that are tunnels by their names.
func (k VXLANs) All() (map[string][]netobj.VXLAN, error) {
	named, links, err := k.numbered("vxlan")
	out := map[string][]netobj.VXLAN{}
	for id, l := range named {
		v := netobj.VXLAN{ID: id}
		switch t, is := l.(*nl.Vxlan); {
		case !is:
			v.LinkType = "a " + l.Type()
		case t.VxlanId != id:
			v.LinkType = fmt.Sprintf("VXLAN %d", t.VxlanId)
		default:
			v.Dev = nameOf(links[t.VtepDevIndex])
		}
		out[v.Key()] = []netobj.VXLAN{v}
	}
	return out, err
}

// Observed returns all tunnels, whatever their names, by number.
func (k VXLANs) Observed() ([]netobj.ObservedVXLAN, error) {
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	peers, err := k.peersByLink()
	if err != nil {
		return nil, err
	}
	var out []netobj.ObservedVXLAN
	for index, l := range links {
		if t, ok := l.(*nl.Vxlan); ok {
			out = append(out, netobj.ObservedVXLAN{ID: t.VxlanId, Name: t.Name, Real: nameOf(links[t.VtepDevIndex]), Peers: peers[index]})
		}
	}
	slices.SortFunc(out, func(a, b netobj.ObservedVXLAN) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// peersByLink returns the addresses to which each tunnel sends broadcasts.
func (k *Kernel) peersByLink() (map[int][]netip.Addr, error) {
	list, err := k.forwarding()
	out := map[int][]netip.Addr{}
	for i := range list {
		n := &list[i]
		if n.IP != nil && !slices.ContainsFunc(n.HardwareAddr, func(b byte) bool { return b != 0 }) {
			out[n.LinkIndex] = append(out[n.LinkIndex], addrOf(n.IP))
		}
	}
	for _, peers := range out {
		slices.SortFunc(peers, netip.Addr.Compare)
	}
	return out, err
}

// Make makes the tunnel, from the first address of the interface below, IPv4 if it has one, and
// sets it up.
func (k VXLANs) Make(v netobj.VXLAN) error {
	below, err := k.index(v.Dev)
	if err != nil {
		return err
	}
	addresses, err := k.byLink()
	if err != nil {
		return err
	}
	from := tunnelAddress(addresses[below])
	if !from.IsValid() {
		return fmt.Errorf("interface %s has no address that VXLAN %d could come from: %w", v.Dev, v.ID, unix.EADDRNOTAVAIL)
	}
	err = k.nl.LinkAdd(&nl.Vxlan{
		LinkAttrs: nl.LinkAttrs{Name: v.Device(), HardwareAddr: k.mac(v.Device()), Flags: net.FlagUp},
		VxlanId:   v.ID, VtepDevIndex: below, SrcAddr: from.AsSlice(), Port: vxlanPort, Learning: true,
	})
	if err != nil {
		return fmt.Errorf("the kernel refuses VXLAN %d over %s: %w", v.ID, v.Dev, err)
	}
	return nil
}

func tunnelAddress(list []netip.Prefix) (from netip.Addr) {
	for _, p := range list {
		switch a := p.Addr(); {
		case a.Is4():
			return a
		case !from.IsValid() && !a.IsLinkLocalUnicast():
			from = a
		}
	}
	return from
}

// Remove removes the tunnel.
func (k VXLANs) Remove(v netobj.VXLAN) error {
	if err := k.removeLink(v.Device(), "vxlan"); err != nil {
		return fmt.Errorf("remove VXLAN %d: %w", v.ID, err)
	}
	return nil
}

// VXLANPeers is the kind of peers of tunnels.
type VXLANPeers struct{ *Kernel }

// All returns the peers of interfaces that are tunnels by their names.
func (k VXLANPeers) All() (map[string][]netobj.VXLANPeer, error) {
	named, _, err := k.numbered("vxlan")
	if err != nil {
		return nil, err
	}
	peers, err := k.peersByLink()
	out := map[string][]netobj.VXLANPeer{}
	for id, l := range named {
		for _, a := range peers[l.Attrs().Index] {
			p := netobj.VXLANPeer{ID: id, Peer: a}
			out[p.Key()] = []netobj.VXLANPeer{p}
		}
	}
	return out, err
}

func floodEntry(index int, p netobj.VXLANPeer) *nl.Neigh {
	return &nl.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: unix.NUD_PERMANENT, Flags: unix.NTF_SELF,
		HardwareAddr: make(net.HardwareAddr, len(netobj.MAC{})), IP: p.Peer.AsSlice(),
	}
}

// Make adds the peer to the tunnel.
func (k VXLANPeers) Make(p netobj.VXLANPeer) error {
	index, err := k.index(p.Device())
	if err != nil {
		return err
	}
	if err := k.nl.NeighAppend(floodEntry(index, p)); err != nil {
		return fmt.Errorf("the kernel refuses peer %s of VXLAN %d: %w", p.Peer, p.ID, err)
	}
	return nil
}

// Remove stops the tunnel from sending to the peer.
func (k VXLANPeers) Remove(p netobj.VXLANPeer) error {
	index, err := k.index(p.Device())
	if err == nil {
		err = k.nl.NeighDel(floodEntry(index, p))
	}
	if err := absent(err, unix.ENOENT); err != nil {
		return fmt.Errorf("remove peer %s of VXLAN %d: %w", p.Peer, p.ID, err)
	}
	return nil
}
