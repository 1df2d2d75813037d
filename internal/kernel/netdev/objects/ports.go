package objects

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	nl "github.com/vishvananda/netlink"

	"loxilb/internal/lb/netobj"
)

// Ports returns all interfaces, by index.
func (k *Kernel) Ports() ([]netobj.Port, error) {
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	addresses, err := k.byLink()
	if err != nil {
		return nil, err
	}
	out := make([]netobj.Port, 0, len(links))
	for index, l := range links {
		p := portOf(l, links)
		p.Addresses = addresses[index]
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b netobj.Port) int { return cmp.Compare(a.Index, b.Index) })
	return out, nil
}

func portOf(l nl.Link, links map[int]nl.Link) netobj.Port {
	a := l.Attrs()
	p := netobj.Port{
		Index: a.Index, Name: a.Name, MAC: a.HardwareAddr, MTU: a.MTU,
		Carrier: a.RawFlags&lowerUp != 0, Up: a.Flags&net.FlagUp != 0,
	}
	if s := a.Statistics; s != nil {
		p.Rx = netobj.Traffic{Bytes: s.RxBytes, Packets: s.RxPackets, Errors: s.RxErrors}
		p.Tx = netobj.Traffic{Bytes: s.TxBytes, Packets: s.TxPackets, Errors: s.TxErrors}
	}
	master := links[a.MasterIndex]
	if master != nil {
		p.Master = master.Attrs().Name
		p.VLAN = vlanOf(master)
	}
	switch on := l.(type) {
	case *nl.Vlan:
		p.Type, p.VLAN, p.Tagged = netobj.PortVLANMember, on.VlanId, true
		p.Real = nameOf(links[a.ParentIndex])
	case *nl.Vxlan:
		p.Type, p.Tunnel = netobj.PortVXLAN, on.VxlanId
		p.Real = nameOf(links[on.VtepDevIndex])
	case *nl.Bridge:
		p.Type = netobj.PortVLAN
		p.VLAN = vlanOf(l)
	case *nl.Bond:
		p.Type = netobj.PortBond
	default:
		p.Type = netobj.PortReal
	}
	switch master.(type) {
	case *nl.Bridge:
		p.Type |= netobj.PortVLANMember
	case *nl.Bond:
		p.Type |= netobj.PortBondMember
	}
	return p
}

// lowerUp is IFF_LOWER_UP.
const lowerUp = 1 << 16

func nameOf(l nl.Link) string {
	if l == nil {
		return ""
	}
	return l.Attrs().Name
}

// vlanOf returns the number of the VLAN of a bridge by its name, such as vlan100; 0: none.
func vlanOf(l nl.Link) int {
	digits, ok := strings.CutPrefix(l.Attrs().Name, "vlan")
	n, err := strconv.Atoi(digits)
	if _, bridge := l.(*nl.Bridge); !bridge || !ok || err != nil || n < 1 || n > 4094 || strconv.Itoa(n) != digits {
		return 0
	}
	return n
}
