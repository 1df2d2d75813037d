package objects

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb/netobj"
)

// Addresses is the kind of addresses.
type Addresses struct{ *Kernel }

// All returns the addresses of all interfaces.
func (k Addresses) All() (map[string][]netobj.Address, error) {
	seen, err := k.Observed()
	if err != nil {
		return nil, err
	}
	out := map[string][]netobj.Address{}
	for _, d := range seen {
		for _, p := range d.Addresses {
			a := netobj.Address{Dev: d.Dev, Prefix: p}
			out[a.Key()] = append(out[a.Key()], a)
		}
	}
	return out, nil
}

// Observed returns the addresses of each interface that has one, in the order of interfaces.
func (k Addresses) Observed() ([]netobj.DeviceAddresses, error) {
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	byLink, err := k.byLink()
	if err != nil {
		return nil, err
	}
	var out []netobj.DeviceAddresses
	for index, l := range links {
		if list := byLink[index]; len(list) > 0 {
			out = append(out, netobj.DeviceAddresses{Dev: l.Attrs().Name, Addresses: list})
		}
	}
	slices.SortFunc(out, func(a, b netobj.DeviceAddresses) int { return cmp.Compare(a.Dev, b.Dev) })
	return out, nil
}

func (k *Kernel) byLink() (map[int][]netip.Prefix, error) {
	list, err := dump(func() ([]nl.Addr, error) { return k.nl.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[int][]netip.Prefix{}
	for _, a := range list {
		out[a.LinkIndex] = append(out[a.LinkIndex], prefixOf(a.IPNet))
	}
	return out, nil
}

// Absent reports whether the address is not local. A new IPv6 address is not local while the kernel
// checks for duplicates.
func (k Addresses) Absent(a netobj.Address) bool {
	if a.Prefix.Addr().Is6() {
		return false
	}
	ways, err := k.nl.RouteGet(a.Prefix.Addr().AsSlice())
	return unreachable(err) || err == nil && len(ways) > 0 && ways[0].Type != unix.RTN_LOCAL
}

// Make adds the address to the interface.
func (k Addresses) Make(a netobj.Address) error {
	index, err := k.index(a.Dev)
	if err != nil {
		return err
	}
	if err := k.nl.AddrAdd(nil, &nl.Addr{IPNet: netOf(a.Prefix), LinkIndex: index}); err != nil {
		return fmt.Errorf("the kernel refuses address %s on %s: %w", a.Prefix, a.Dev, err)
	}
	return nil
}

// Remove removes it from the interface.
func (k Addresses) Remove(a netobj.Address) error {
	index, err := k.index(a.Dev)
	if err == nil {
		err = k.nl.AddrDel(nil, &nl.Addr{IPNet: netOf(a.Prefix), LinkIndex: index})
	}
	if err := absent(err, unix.EADDRNOTAVAIL); err != nil {
		return fmt.Errorf("remove address %s from %s: %w", a.Prefix, a.Dev, err)
	}
	return nil
}

func unreachable(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
}
