package mirror

import (
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev/netlink"
)

// rememberedGone bounds the number of deleted neighbours whose last MAC address is kept in memory.
const rememberedGone = 1 << 16

// Hop is a next hop: the interface by which packets leave, and the gateway that they are sent to.
type Hop struct {
	Link int // index of the interface
	// Via is the gateway, or the neighbour itself. It is not valid for a route without a gateway.
	Via netip.Addr
}

// neighbour is an entry of the kernel's neighbour table. mac is the last known one: it outlives
// FAILED and deletion, because next hops cached with it are valid until another MAC address is
// seen.
type neighbour struct {
	mac     string // raw bytes; empty while never resolved
	state   uint16 // NUD_*; 0: deleted
	silent  bool   // it failed, and has not answered since; a new request does not change that
	managed bool   // the kernel keeps it resolved (NTF_EXT_MANAGED)
	ours    bool   // added or adopted by us (NDA_PROTOCOL is OwnProtocol)
}

// isRequested reports whether the kernel has asked for the MAC address and waits for the answer.
func (n neighbour) isRequested() bool { return n.state&unix.NUD_INCOMPLETE != 0 }

// address is an address of a link: prefix has the host bits.
type address struct {
	link   int
	prefix netip.Prefix
	ours   bool
}

// network is an on-link route that the kernel made for an address or a router advertisement.
type network struct {
	link   int
	prefix netip.Prefix
	table  uint32
	metric uint32
}

// tables are copies of the kernel's tables.
type tables struct {
	mu          sync.RWMutex
	links       map[int]Link
	generations uint64 // number of links so far
	addresses   map[netip.Addr][]address
	networks    map[network]struct{}
	neighbours  map[Hop]neighbour
	gone        int // number of neighbours with state 0
	routing     routing
	reserved    map[netip.Addr]struct{} // VIPs that we own: local routes to them change no next hop
}

func newTables() *tables {
	return &tables{
		links:      map[int]Link{},
		addresses:  map[netip.Addr][]address{},
		networks:   map[network]struct{}{},
		neighbours: map[Hop]neighbour{},
		reserved:   map[netip.Addr]struct{}{},
		routing:    newRouting(),
	}
}

// apply applies one rtnetlink message to the tables and returns what it changed.
func (t *tables) apply(m netlink.Message) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		c = t.applyLink(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		c = t.applyAddress(m)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		c = t.applyNeighbour(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		c = t.applyRoute(m)
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP, unix.RTM_NEWRULE, unix.RTM_DELRULE:
		c = t.applyRouting(m)
	case unix.RTM_NEWNETCONF:
		c.Settings = true
	}
	if c.NextHops || c.MACs {
		c.Messages = 1
	}
	return c
}

// applyRouting hands a message on to routing.
func (t *tables) applyRouting(m netlink.Message) Change {
	if !mayChangeDefaults(m) { // nearly all
		t.routing.apply(m)
		return Change{NextHops: true}
	}
	before := t.routing.defaults.list()
	t.routing.apply(m)
	return Change{NextHops: true, Defaults: t.defaultsDiffer(before)}
}

// defaultsDiffer reports whether the default routes differ from before.
func (t *tables) defaultsDiffer(before []Hop) bool {
	return t.routing.known && !slices.Equal(before, t.routing.defaults.list())
}

func (t *tables) applyLink(m netlink.Message) Change {
	l, ok := parseLink(m.Body)
	if !ok {
		return Change{}
	}
	old, had := t.links[l.Index]
	if m.Type == unix.RTM_DELLINK {
		if !had {
			return Change{}
		}
		delete(t.links, l.Index)
		for key := range t.neighbours {
			if key.Link == l.Index {
				t.forget(key)
			}
		}
		t.forgetNetworks(l.Index, false)
		c := Change{Events: linkEvent(old, event.Removed), NextHops: true, Places: true}
		c.Defaults = t.linkDown(l.Index, true, true)
		return c
	}
	if had {
		l.Generation = old.Generation
	} else {
		t.generations++
		l.Generation = t.generations
	}
	t.links[l.Index] = l
	if had && old.looksLike(l) {
		if l.offloadsChanged {
			return Change{Events: linkEvent(l, event.Changed)}
		}
		return Change{}
	}
	// No flow uses a new link yet; its addresses and routes arrive as changes of their own. A port
	// changes the destinations of its bridge.
	c := Change{Events: linkEvent(l, event.Changed), NextHops: had || l.Master != 0, Places: true, Loopback: l.Loopback(), Settings: l.Loopback()}
	if !had {
		c.Events = linkEvent(l, event.Added)
	}
	if !l.Up {
		t.forgetNetworks(l.Index, true)
	}
	down, noCarrier := old.Up && !l.Up, old.Running() && !l.Running()
	if down || noCarrier || had && old.Master != l.Master {
		c.Defaults = t.linkDown(l.Index, down, noCarrier)
	}
	return c
}

func linkEvent(l Link, action event.Action) []event.Body {
	return []event.Body{l.Event(action)}
}

// forgetNetworks drops the connected networks of a link. The kernel reports the removal of IPv6
// routes, but not of IPv4 routes.
func (t *tables) forgetNetworks(link int, ipv4Only bool) {
	for n := range t.networks {
		if n.link == link && (!ipv4Only || n.prefix.Addr().Is4()) {
			delete(t.networks, n)
		}
	}
}

// linkDown reports whether the default routes change without the link.
func (t *tables) linkDown(link int, down, noCarrier bool) bool {
	before := t.routing.defaults.list()
	t.routing.change(func(d *defaults) bool { return d.linkDown(link, down, noCarrier) })
	return t.defaultsDiffer(before)
}

func (t *tables) applyAddress(m netlink.Message) Change {
	a, ok := parseAddress(m.Body)
	if !ok {
		return Change{}
	}
	ip := a.prefix.Addr()
	list := t.addresses[ip]
	at := -1
	for i, have := range list {
		if have.link == a.link && have.prefix == a.prefix {
			at = i
		}
	}
	action := event.Removed
	switch {
	case m.Type == unix.RTM_NEWADDR && at >= 0:
		list[at] = a // only a lifetime or a flag
		return Change{}
	case m.Type == unix.RTM_NEWADDR:
		t.addresses[ip] = append(list, a)
		if a.ours {
			return Change{}
		}
		action = event.Added
	case at < 0:
		return Change{}
	case len(list) == 1:
		delete(t.addresses, ip)
	default:
		t.addresses[ip] = append(list[:at:at], list[at+1:]...)
	}
	c := Change{Addresses: []netip.Addr{ip}}
	if !a.ours {
		c.Events = []event.Body{event.Address{Addr: ip, Action: action}}
		c.NextHops, c.Gone = true, action == event.Removed
	}
	if action == event.Removed {
		t.routing.change(func(d *defaults) bool { return d.addressGone(ip, a.link) })
	}
	return c
}

func (t *tables) applyNeighbour(m netlink.Message) Change {
	key, n, ok := parseNeighbour(m.Body)
	if !ok {
		return Change{}
	}
	old, had := t.neighbours[key]
	if m.Type == unix.RTM_DELNEIGH {
		if !had || old.state == 0 {
			return Change{}
		}
		var c Change
		if old.mac == "" {
			delete(t.neighbours, key)
		} else {
			t.neighbours[key] = neighbour{mac: old.mac}
			t.gone++
			c = t.boundGone()
		}
		c.Unmanaged = old.managed && old.ours
		return c
	}
	if had && old.state == 0 {
		t.gone--
	}
	if n.mac == "" || n.state&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) != 0 {
		n.mac = old.mac
	}
	n.silent = n.state&unix.NUD_FAILED != 0 || (old.silent && n.isRequested())
	t.neighbours[key] = n
	c := Change{MACs: old.mac != "" && n.mac != old.mac, Unmanaged: old.managed && old.ours && !n.managed}
	action := event.Changed
	switch {
	case c.MACs:
	case n.silent && !old.silent && n.mac != "":
		action = event.Removed
	case old.silent && !n.silent && n.mac != "":
		action = event.Added
	default:
		return c
	}
	c.Events = []event.Body{event.Neighbour{Addr: key.Via, Link: t.links[key.Link].Name, Action: action}}
	return c
}

func (t *tables) forget(key Hop) {
	if t.neighbours[key].state == 0 {
		t.gone--
	}
	delete(t.neighbours, key)
}

// boundGone forgets deleted neighbours when they become too many; then all next hops resolve their
// MAC addresses again.
func (t *tables) boundGone() Change {
	if t.gone <= rememberedGone {
		return Change{}
	}
	for key, n := range t.neighbours {
		if n.state == 0 {
			delete(t.neighbours, key)
		}
	}
	t.gone = 0
	return Change{MACs: true}
}

func (t *tables) applyRoute(m netlink.Message) Change {
	rt, ok := netlink.ParseRoute(m.Body)
	if !ok || netlink.Uint32(m.Body[8:])&unix.RTM_F_CLONED != 0 {
		return Change{}
	}
	if rt.Kind == unix.RTN_LOCAL {
		t.routing.check(m)
		var c Change
		_, ours := t.reserved[rt.Dst.Addr()]
		c.NextHops = !ours || !rt.Dst.IsSingleIP()
		if m.Type == unix.RTM_DELROUTE && rt.Proto == netlink.OwnProtocol {
			c.Addresses = []netip.Addr{rt.Dst.Addr()}
		}
		return c
	}
	c := t.applyRouting(m)
	c.Gone = m.Type == unix.RTM_DELROUTE
	if net, ok := connected(rt); ok {
		_, had := t.networks[net]
		if m.Type == unix.RTM_DELROUTE {
			delete(t.networks, net)
			c.Places = had
		} else {
			t.networks[net] = struct{}{}
			c.Places = !had
		}
	}
	return c
}
