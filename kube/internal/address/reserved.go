package address

import (
	"fmt"
	"net/netip"
)

// Reserved has addresses of the cluster's machines and pods, which no service gets. The values name
// the owner, such as "node n1".
type Reserved struct {
	Addresses map[netip.Addr]string
	Prefixes  map[netip.Prefix]string
}

// SetReserved replaces the reserved addresses. Services that have one of them keep it.
func (a *Allocator) SetReserved(r Reserved) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserved = r
	clear(a.lowest)
}

// by returns the owner of a reserved address.
func (r *Reserved) by(c netip.Addr) string {
	if who, ok := r.Addresses[c]; ok {
		return who
	}
	p, _ := r.prefixOf(c)
	return r.Prefixes[p]
}

// last returns the end of the reserved addresses that begin with c. A prefix is one step, as an
// IPv6 network has too many.
func (r *Reserved) last(c netip.Addr) (last netip.Addr, reserved bool) {
	if p, ok := r.prefixOf(c); ok {
		return lastOf(p), true
	}
	_, reserved = r.Addresses[c]
	return c, reserved
}

// impossible returns the addresses that no service can have.
func impossible() (list []netip.Prefix) {
	for _, text := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8"} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// Unusable returns why an address belongs to no service and to no endpoint in a further network, or
// nothing.
func (a *Allocator) Unusable(c netip.Addr) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unusable(c, false)
}

// unusable returns why no service can have an address that one asks for. One that has it already
// keeps it if it is merely reserved: its clients use it.
func (a *Allocator) unusable(c netip.Addr, has bool) string {
	for _, p := range impossible() {
		if p.Contains(c) {
			return fmt.Sprintf("address %s is in %s, which no service can have", c, p)
		}
	}
	if who := a.reserved.by(c); who != "" && !has {
		return fmt.Sprintf("address %s belongs to %s", c, who)
	}
	return ""
}

// countReserved subtracts unused reserved addresses from the size of a pool.
func (a *Allocator) countReserved(p *Pool, u *PoolUsage) {
	prefixes := make([]Range, 0, len(a.reserved.Prefixes))
	for reserved := range a.reserved.Prefixes {
		prefixes = append(prefixes, Range{reserved.Masked().Addr(), lastOf(reserved)})
	}
	for _, own := range p.Ranges {
		for _, other := range prefixes {
			if own.overlaps(other) {
				u.take(Range{later(own.First, other.First), earlier(own.Last, other.Last)}.size(), own.First.Is6())
			}
		}
	}
	for c := range a.reserved.Addresses {
		if !p.Contains(c) {
			continue
		}
		if _, counted := a.reserved.prefixOf(c); !counted {
			u.take(1, c.Is6())
		}
	}
	for c := range a.holders {
		if p.Contains(c) && a.reserved.by(c) != "" {
			u.take(-1, c.Is6())
		}
	}
}

// prefixOf returns a reserved prefix that contains an address, if there is one.
func (r *Reserved) prefixOf(c netip.Addr) (p netip.Prefix, ok bool) {
	for p := range r.Prefixes {
		if p.Contains(c) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// take makes a pool n addresses smaller.
func (u *PoolUsage) take(n int64, six bool) {
	if six {
		u.IPv6.Total -= n
	} else {
		u.IPv4.Total -= n
	}
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlier(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return a
	}
	return b
}
