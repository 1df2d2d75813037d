package objects

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/netobj"
)

// ownGroup is the group of interfaces that loxilb made on top of others, the only mark that an
// interface can have from its creation. So a process that dies leaves no interface without it.
const ownGroup = 108

// VLANs is the kind of VLANs.
type VLANs struct{ *Kernel }

// numbered returns the interfaces named by a word and a number.
func (k *Kernel) numbered(word string) (map[int]nl.Link, map[int]nl.Link, error) {
	links, err := k.links()
	if err != nil {
		return nil, nil, err
	}
	out := map[int]nl.Link{}
	for _, l := range links {
		digits, ok := strings.CutPrefix(l.Attrs().Name, word)
		if n, err := strconv.Atoi(digits); ok && err == nil && n > 0 && strconv.Itoa(n) == digits {
			out[n] = l
		}
	}
	return out, links, nil
}

// All returns the bridges and other links that are VLANs by their names.
func (k VLANs) All() (map[string][]netobj.VLAN, error) {
	named, _, err := k.numbered("vlan")
	out := map[string][]netobj.VLAN{}
	for id, l := range named {
		v := netobj.VLAN{ID: id}
		if l.Type() != "bridge" {
			v.LinkType = l.Type()
		}
		out[v.Key()] = []netobj.VLAN{v}
	}
	return out, err
}

// Observed returns the VLANs with their members, by number.
func (k VLANs) Observed() ([]netobj.ObservedVLAN, error) {
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	out := map[int]*netobj.ObservedVLAN{}
	for index, l := range links {
		if id := vlanOf(l); id != 0 {
			out[index] = &netobj.ObservedVLAN{ID: id, Dev: l.Attrs().Name}
		}
	}
	for _, l := range links {
		v := out[l.Attrs().MasterIndex]
		if v == nil {
			continue
		}
		v.Members = append(v.Members, memberOf(v.ID, l, links))
		if s := l.Attrs().Statistics; s != nil {
			v.In.Bytes, v.In.Packets = v.In.Bytes+s.RxBytes, v.In.Packets+s.RxPackets
			v.Out.Bytes, v.Out.Packets = v.Out.Bytes+s.TxBytes, v.Out.Packets+s.TxPackets
		}
	}
	list := make([]netobj.ObservedVLAN, 0, len(out))
	for _, v := range out {
		slices.SortFunc(v.Members, func(a, b netobj.VLANMember) int { return strings.Compare(a.Key(), b.Key()) })
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b netobj.ObservedVLAN) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// memberOf returns the member for an interface in the bridge of a VLAN.
func memberOf(id int, l nl.Link, links map[int]nl.Link) netobj.VLANMember {
	if v, ok := l.(*nl.Vlan); ok && v.VlanId == id {
		m := netobj.VLANMember{VLAN: id, Dev: nameOf(links[v.ParentIndex]), Tagged: true}
		if m.Port() == v.Name {
			return m
		}
	}
	return netobj.VLANMember{VLAN: id, Dev: l.Attrs().Name}
}

// Make makes the bridge, and sets it up.
func (k VLANs) Make(v netobj.VLAN) error {
	err := k.nl.LinkAdd(&nl.Bridge{LinkAttrs: nl.LinkAttrs{Name: v.Device(), HardwareAddr: k.mac(v.Device()), Flags: net.FlagUp}})
	if err != nil {
		return fmt.Errorf("the kernel refuses bridge %s: %w", v.Device(), err)
	}
	return nil
}

// Remove removes the bridge.
func (k VLANs) Remove(v netobj.VLAN) error {
	if err := k.removeLink(v.Device(), "bridge"); err != nil {
		return fmt.Errorf("remove VLAN %d: %w", v.ID, err)
	}
	return nil
}

// removeLink removes an interface of a type.
func (k *Kernel) removeLink(name, kind string) error {
	l, err := k.link(name)
	switch {
	case err != nil:
		return absent(err)
	case l.Type() != kind:
		return fmt.Errorf("%s is not a %s: %w", name, kind, unix.EINVAL)
	}
	return absent(k.nl.LinkDel(l))
}

// VLANMembers is the kind of members of VLANs.
type VLANMembers struct{ *Kernel }

// All returns the interfaces in bridges that are VLANs.
func (k VLANMembers) All() (map[string][]netobj.VLANMember, error) {
	seen, err := VLANs(k).Observed()
	out := map[string][]netobj.VLANMember{}
	for _, v := range seen {
		for _, m := range v.Members {
			out[m.Key()] = []netobj.VLANMember{m}
		}
	}
	return out, err
}

// Make adds the interface, or a tagged interface on top of it, to the bridge, and sets it up.
func (k VLANMembers) Make(m netobj.VLANMember) error {
	bridge, err := k.index(m.Bridge())
	if err != nil {
		return err
	}
	if m.Tagged {
		if err := k.makeTagged(m); err != nil {
			return err
		}
	}
	l, err := k.link(m.Port())
	if err != nil {
		return err
	}
	if of := l.Attrs().MasterIndex; of != 0 && of != bridge {
		name := "another interface"
		if master, err := k.nl.LinkByIndex(of); err == nil {
			name = master.Attrs().Name
		}
		return &netobj.ForeignError{Kind: "interface", Has: m.Port() + " of " + name}
	}
	if err = k.nl.LinkSetUp(l); err == nil {
		err = k.nl.LinkSetMasterByIndex(l, bridge)
	}
	if err != nil {
		return fmt.Errorf("the kernel refuses %s in %s: %w", m.Port(), m.Bridge(), err)
	}
	return nil
}

// makeTagged makes the tagged interface, or uses an existing one: a process may have died before it
// added the interface to the bridge.
func (k VLANMembers) makeTagged(m netobj.VLANMember) error {
	parent, err := k.index(m.Dev)
	if err != nil {
		return err
	}
	l, err := k.link(m.Port())
	switch v, is := l.(*nl.Vlan); {
	case err == nil && (!is || v.Group != ownGroup || v.VlanId != m.VLAN || v.ParentIndex != parent):
		return &netobj.ForeignError{Kind: "interface", Has: m.Port()}
	case err == nil:
		return nil
	case !errors.As(err, new(*netobj.NoDeviceError)):
		return err
	}
	err = k.nl.LinkAdd(&nl.Vlan{LinkAttrs: nl.LinkAttrs{Name: m.Port(), ParentIndex: parent, Group: ownGroup}, VlanId: m.VLAN, VlanProtocol: nl.VLAN_PROTOCOL_8021Q})
	if err != nil {
		return fmt.Errorf("the kernel refuses %s, for which it needs the module 8021q: %w", m.Port(), err)
	}
	return nil
}

// Remove removes the interface from the bridge, and deletes a tagged one.
func (k VLANMembers) Remove(m netobj.VLANMember) error {
	var err error
	if m.Tagged {
		err = k.removeLink(m.Port(), "vlan")
	} else {
		err = k.remove(m)
	}
	if err != nil {
		return fmt.Errorf("take %s out of VLAN %d: %w", m.Dev, m.VLAN, err)
	}
	return nil
}

func (k VLANMembers) remove(m netobj.VLANMember) error {
	bridge, err := k.index(m.Bridge())
	if err != nil {
		return absent(err)
	}
	l, err := k.link(m.Dev)
	if err != nil || l.Attrs().MasterIndex != bridge {
		return absent(err)
	}
	return absent(k.nl.LinkSetNoMaster(l))
}
