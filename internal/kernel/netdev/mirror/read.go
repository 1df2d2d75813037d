package mirror

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Links returns all links by index.
func (m *Mirror) Links() []Link {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return slices.SortedFunc(maps.Values(m.tables.links), func(a, b Link) int { return a.Index - b.Index })
}

// Loopback returns the loopback interface, if there is one.
func (m *Mirror) Loopback() (lo Link, ok bool) {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	for _, l := range m.tables.links {
		if l.Loopback() {
			return l, true
		}
	}
	return Link{}, false
}

// Link returns the link with an index, or the zero Link.
func (m *Mirror) Link(index int) Link {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return m.tables.links[index]
}

// OnLink returns the links, without lo, whose connected network contains the address: their
// neighbours resolve it by ARP or neighbour discovery.
func (m *Mirror) OnLink(a netip.Addr) []Link {
	t := m.tables
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []Link
	for net := range t.networks {
		if !net.prefix.Contains(a) || slices.ContainsFunc(out, func(l Link) bool { return l.Index == net.link }) {
			continue
		}
		if l, ok := t.links[net.link]; ok {
			out = append(out, l)
		}
	}
	return out
}

// NetworkBits returns the length of the network that an address of this machine on a link shares
// with a neighbour there; 0: none. A neighbour with a link-local address is in all networks of the
// link.
func (m *Mirror) NetworkBits(own netip.Addr, link int, neighbour netip.Addr) uint8 {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	for _, a := range m.tables.addresses[own] {
		if a.link == link && !a.prefix.IsSingleIP() && (neighbour.IsLinkLocalUnicast() || a.prefix.Contains(neighbour)) {
			return uint8(a.prefix.Bits())
		}
	}
	return 0
}

// IPv4Links returns the links that have a connected IPv4 network.
func (m *Mirror) IPv4Links() []Link {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	links := map[int]Link{}
	for net := range m.tables.networks {
		if l, ok := m.tables.links[net.link]; ok && net.prefix.Addr().Is4() {
			links[net.link] = l
		}
	}
	return slices.Collect(maps.Values(links))
}

// Addresses lists the addresses of this machine that others can reach, without our VIPs.
func (m *Mirror) Addresses() []netip.Addr {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	var out []netip.Addr
	for a, places := range m.tables.addresses {
		if a.IsGlobalUnicast() && slices.ContainsFunc(places, func(p address) bool { return !p.ours }) {
			out = append(out, a)
		}
	}
	return out
}

// OnlyOurs reports whether an address is on this machine only because we added it.
func (m *Mirror) OnlyOurs(a netip.Addr) bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	places := m.tables.addresses[a]
	return len(places) > 0 && !slices.ContainsFunc(places, func(p address) bool { return !p.ours })
}

// Foreign reports whether another owner assigned the address to the link.
func (m *Mirror) Foreign(a netip.Addr, link int) bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return slices.ContainsFunc(m.tables.addresses[a], func(p address) bool { return p.link == link && !p.ours })
}

// Own reports whether this machine has the address, unless we added it.
func (m *Mirror) Own(a netip.Addr) bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return slices.ContainsFunc(m.tables.addresses[a], func(p address) bool { return !p.ours })
}

// Ours lists the addresses that this process or an earlier one added, with the index of the link.
func (m *Mirror) Ours() iter.Seq2[netip.Addr, int] {
	return func(yield func(netip.Addr, int) bool) {
		m.tables.mu.RLock()
		defer m.tables.mu.RUnlock()
		for a, places := range m.tables.addresses {
			for _, p := range places {
				if p.ours && p.prefix.IsSingleIP() && !yield(a, p.link) {
					return
				}
			}
		}
	}
}

// CanRestore reports whether an address of ours can stay on, or be added again to, the link: the
// link has it, or is up.
func (m *Mirror) CanRestore(a netip.Addr, link int) bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	here := func(p address) bool { return p.link == link && p.ours }
	return m.tables.links[link].Up || slices.ContainsFunc(m.tables.addresses[a], here)
}

// ReserveRoutes marks local routes to these VIPs as ours, so their changes cause no events. Routes
// of former VIPs stay reserved for a while, until the kernel reports their removal; forgetting one
// too early costs a needless event. inUse is the number of our VIPs.
func (m *Mirror) ReserveRoutes(vips []netip.Addr, inUse int) {
	const slack = 1024
	t := m.tables
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.reserved) > 2*(inUse+len(vips))+slack {
		t.reserved = map[netip.Addr]struct{}{}
	}
	for _, a := range vips {
		t.reserved[a] = struct{}{}
	}
}

// Neighbour is the state of a next hop.
type Neighbour struct {
	Silent    bool // it does not answer requests
	Permanent bool // its link-layer address was configured
	Managed   bool // the kernel keeps it resolved, at our request
}

// Neighbour returns the state of a next hop.
func (m *Mirror) Neighbour(h Hop) Neighbour {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	n := m.tables.neighbours[h]
	return Neighbour{Silent: n.silent, Permanent: n.state&unix.NUD_PERMANENT != 0, Managed: n.managed && n.ours}
}

// Managed lists the next hops that the kernel keeps resolved at our request, of this process or an
// earlier one.
func (m *Mirror) Managed() []Hop {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	var out []Hop
	for h, n := range m.tables.neighbours {
		if n.managed && n.ours {
			out = append(out, h)
		}
	}
	return out
}
