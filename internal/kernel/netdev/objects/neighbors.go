package objects

import (
	"errors"
	"fmt"
	"net"
	"slices"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/netobj"
)

// Neighbors is the kind of neighbours.
type Neighbors struct{ *Kernel }

// All returns configured neighbours, without those that the kernel resolved.
func (k Neighbors) All() (map[string][]netobj.Neighbor, error) {
	list, err := k.list(func(n *nl.Neigh) bool { return n.State&unix.NUD_PERMANENT != 0 })
	if err != nil {
		return nil, err
	}
	out := map[string][]netobj.Neighbor{}
	for _, n := range list {
		out[n.Key()] = append(out[n.Key()], n)
	}
	return out, nil
}

// Observed returns all with a known MAC address, in the kernel's order.
func (k Neighbors) Observed() ([]netobj.Neighbor, error) {
	return k.list(func(n *nl.Neigh) bool { return n.State&(unix.NUD_FAILED|unix.NUD_INCOMPLETE|unix.NUD_NOARP) == 0 })
}

// Confirmed lists hosts that have answered recently or are being probed. A stale entry may be of a
// host that has left, and a permanent one was configured.
func (k Neighbors) Confirmed() ([]netobj.Neighbor, error) {
	return k.list(func(n *nl.Neigh) bool { return n.State&(unix.NUD_REACHABLE|unix.NUD_DELAY|unix.NUD_PROBE) != 0 })
}

func (k Neighbors) list(keep func(*nl.Neigh) bool) (out []netobj.Neighbor, err error) {
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := dump(func() ([]nl.Neigh, error) { return k.nl.NeighList(0, family) })
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for i := range list {
			n := &list[i]
			l := links[n.LinkIndex]
			if l == nil || !keep(n) || len(n.HardwareAddr) != len(netobj.MAC{}) {
				continue
			}
			out = append(out, netobj.Neighbor{Addr: addrOf(n.IP), Dev: l.Attrs().Name, MAC: netobj.MAC(n.HardwareAddr)})
		}
	}
	return slices.Clip(out), nil
}

// Absent reports whether no such neighbour is configured.
func (k Neighbors) Absent(n netobj.Neighbor) bool {
	index, err := k.index(n.Dev)
	if err != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	state, err := k.conn.Neighbour(index, n.Addr)
	return errors.Is(err, unix.ENOENT) || err == nil && state&unix.NUD_PERMANENT == 0
}

// Make adds a permanent neighbour. It replaces a resolved one.
func (k Neighbors) Make(n netobj.Neighbor) error {
	index, err := k.index(n.Dev)
	if err != nil {
		return err
	}
	err = k.nl.NeighSet(&nl.Neigh{LinkIndex: index, IP: n.Addr.AsSlice(), HardwareAddr: net.HardwareAddr(n.MAC[:]), State: unix.NUD_PERMANENT})
	if err != nil {
		return fmt.Errorf("the kernel refuses neighbour %s on %s: %w", n.Addr, n.Dev, err)
	}
	return nil
}

// Remove removes the neighbour; the kernel resolves it again when needed.
func (k Neighbors) Remove(n netobj.Neighbor) error {
	index, err := k.index(n.Dev)
	if err == nil {
		err = k.nl.NeighDel(&nl.Neigh{LinkIndex: index, IP: n.Addr.AsSlice()})
	}
	if err := absent(err, unix.ENOENT); err != nil {
		return fmt.Errorf("remove neighbour %s from %s: %w", n.Addr, n.Dev, err)
	}
	return nil
}
