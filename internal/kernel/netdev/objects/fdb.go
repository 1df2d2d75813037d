package objects

import (
	"fmt"
	"net"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/netobj"
)

// FDBs is the kind of entries of forwarding tables: the table of the interface's bridge or, without
// a bridge, its own table.
type FDBs struct{ *Kernel }

// entry is an entry of the kernel.
type entry struct {
	netobj.FDB
	raw    nl.Neigh
	static bool // configured, not learned
	isUsed bool // in the table that the interface uses
}

// All returns configured entries, without learned ones.
func (k FDBs) All() (map[string][]netobj.FDB, error) {
	list, err := k.list()
	if err != nil {
		return nil, err
	}
	out := map[string][]netobj.FDB{}
	for _, e := range list {
		if e.static && e.isUsed && len(out[e.Key()]) == 0 {
			out[e.Key()] = []netobj.FDB{e.FDB}
		}
	}
	return out, nil
}

// Observed returns all entries, each once, in the kernel's order.
func (k FDBs) Observed() ([]netobj.FDB, error) {
	list, err := k.list()
	if err != nil {
		return nil, err
	}
	var out []netobj.FDB
	seen := map[netobj.FDB]struct{}{}
	for _, e := range list {
		if _, twice := seen[e.FDB]; !twice {
			seen[e.FDB] = struct{}{}
			out = append(out, e.FDB)
		}
	}
	return out, nil
}

// list returns the entries of single hosts.
func (k FDBs) list() ([]entry, error) {
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	list, err := k.forwarding()
	if err != nil {
		return nil, err
	}
	var out []entry
	for i := range list {
		n := &list[i]
		l := links[n.LinkIndex]
		if l == nil || len(n.HardwareAddr) != len(netobj.MAC{}) {
			continue
		}
		e := entry{FDB: netobj.FDB{Dev: l.Attrs().Name, MAC: netobj.MAC(n.HardwareAddr)}, raw: *n}
		if e.Validate() != nil {
			continue // a group, or everybody
		}
		_, ofBridge := links[l.Attrs().MasterIndex].(*nl.Bridge)
		e.static = n.State&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0
		e.isUsed = ofBridge == (n.Flags&unix.NTF_MASTER != 0)
		out = append(out, e)
	}
	return out, nil
}

// forwarding reads all forwarding tables.
func (k *Kernel) forwarding() ([]nl.Neigh, error) {
	list, err := dump(func() ([]nl.Neigh, error) { return k.nl.NeighList(0, unix.AF_BRIDGE) })
	if err != nil {
		return nil, fmt.Errorf("list forwarding tables: %w", err)
	}
	return list, nil
}

// Make adds a static entry. It replaces a learned one.
func (k FDBs) Make(f netobj.FDB) error {
	l, err := k.link(f.Dev)
	if err != nil {
		return err
	}
	n := &nl.Neigh{
		LinkIndex: l.Attrs().Index, Family: unix.AF_BRIDGE, HardwareAddr: net.HardwareAddr(f.MAC[:]), State: unix.NUD_PERMANENT, Flags: unix.NTF_SELF,
	}
	if master, err := k.nl.LinkByIndex(l.Attrs().MasterIndex); err == nil && master.Type() == "bridge" {
		n.State, n.Flags = unix.NUD_NOARP, unix.NTF_MASTER
	}
	if err := k.nl.NeighSet(n); err != nil {
		return fmt.Errorf("the kernel refuses forwarding entry %s on %s: %w", f.MAC, f.Dev, err)
	}
	return nil
}

// Remove removes the entry from each table that has it.
func (k FDBs) Remove(f netobj.FDB) error {
	list, err := k.list()
	if err != nil {
		return err
	}
	for i := range list {
		e := &list[i]
		if e.FDB != f {
			continue
		}
		n := &nl.Neigh{LinkIndex: e.raw.LinkIndex, Family: unix.AF_BRIDGE, HardwareAddr: e.raw.HardwareAddr, State: e.raw.State,
			Flags: e.raw.Flags & (unix.NTF_SELF | unix.NTF_MASTER), Vlan: e.raw.Vlan, IP: e.raw.IP}
		if err := absent(k.nl.NeighDel(n), unix.ENOENT); err != nil {
			return fmt.Errorf("remove forwarding entry %s from %s: %w", f.MAC, f.Dev, err)
		}
	}
	return nil
}
