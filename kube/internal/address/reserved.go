package address

import (
	"fmt"
	"net/netip"
	"slices"
)

// Reserved has addresses of the cluster's machines and pods, which no service gets. The values name
// the owner, such as "node n1".
type Reserved struct {
	Addresses map[netip.Addr]string
	Prefixes  map[netip.Prefix]string // the keys are masked

	lengths []int // distinct lengths of Prefixes, shortest first
}

// SetReserved replaces the reserved addresses. Services that have one of them keep it.
func (a *Allocator) SetReserved(r Reserved) {
	r.lengths = nil
	for p := range r.Prefixes {
		if i, found := slices.BinarySearch(r.lengths, p.Bits()); !found {
			r.lengths = slices.Insert(r.lengths, i, p.Bits())
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserved = r
	clear(a.firstFree)
}

// owner returns the owner of a reserved address; "" means that it is not reserved.
func (r *Reserved) owner(c netip.Addr) string {
	if who, ok := r.Addresses[c]; ok {
		return who
	}
	p, _ := r.prefixOf(c)
	return r.Prefixes[p]
}

// endOf returns the last address of the reserved prefix that contains c, so searches skip it in one
// step, or c if only that address is reserved.
func (r *Reserved) endOf(c netip.Addr) (last netip.Addr, reserved bool) {
	if p, ok := r.prefixOf(c); ok {
		return lastOf(p), true
	}
	_, reserved = r.Addresses[c]
	return c, reserved
}

// neverUsable returns the addresses that no service can have.
func neverUsable() (list []netip.Prefix) {
	for _, text := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8"} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// Unusable returns why an address can belong neither to a service nor to a pod in an additional
// network; empty: it can.
func (a *Allocator) Unusable(c netip.Addr) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unusable(c, false)
}

// unusable returns why no service can have a requested address. A service that has it already keeps
// it even if it is reserved: its clients use it.
func (a *Allocator) unusable(c netip.Addr, has bool) string {
	for _, p := range neverUsable() {
		if p.Contains(c) {
			return fmt.Sprintf("address %s is in %s, which no service can have", c, p)
		}
	}
	if who := a.reserved.owner(c); who != "" && !has {
		return fmt.Sprintf("address %s belongs to %s", c, who)
	}
	return ""
}

// countReserved subtracts unused reserved addresses from the size of a pool.
func (a *Allocator) countReserved(p *Pool, u *PoolUsage) {
	prefixes := make([]Range, 0, len(a.reserved.Prefixes))
	for reserved := range a.reserved.Prefixes {
		prefixes = append(prefixes, Range{reserved.Addr(), lastOf(reserved)})
	}
	for _, own := range p.Ranges {
		for _, other := range prefixes {
			if own.overlaps(other) {
				u.shrink(Range{higher(own.First, other.First), lower(own.Last, other.Last)}.size(), own.First.Is6())
			}
		}
	}
	for c := range a.reserved.Addresses {
		if !p.Contains(c) {
			continue
		}
		if _, counted := a.reserved.prefixOf(c); !counted {
			u.shrink(1, c.Is6())
		}
	}
	for c := range a.used {
		if p.Contains(c) && a.reserved.owner(c) != "" {
			u.shrink(-1, c.Is6())
		}
	}
}

// prefixOf returns the shortest reserved prefix that contains an address, if there is one. A
// cluster has a prefix for each of thousands of nodes, but few lengths.
func (r *Reserved) prefixOf(c netip.Addr) (netip.Prefix, bool) {
	for _, bits := range r.lengths {
		p, err := c.Prefix(bits)
		if _, reserved := r.Prefixes[p]; reserved && err == nil {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// shrink makes a pool n addresses smaller.
func (u *PoolUsage) shrink(n int64, ipv6 bool) {
	if ipv6 {
		u.IPv6.Total -= n
	} else {
		u.IPv4.Total -= n
	}
}

func higher(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func lower(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return a
	}
	return b
}
