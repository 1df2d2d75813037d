package netdev

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// rememberedGone bounds how many deleted neighbours keep their last MAC in memory.
const rememberedGone = 1 << 16

type neighbourKey struct {
	link int
	addr netip.Addr
}

// neighbour is an entry of the kernel's neighbour table. mac is the last one known: it outlives FAILED and deletion,
// because next hops cached with it are good until another one is seen.
type neighbour struct {
	mac     string // raw bytes; empty while never resolved
	state   uint16 // NUD_*; 0: deleted
	silent  bool   // it failed, and has not answered since: being asked again is no answer
	managed bool   // the kernel keeps it resolved (NTF_EXT_MANAGED)
	ours    bool   // made or taken by us (NDA_PROTOCOL is Owner)
}

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

// change says what a message changed, for those who act on it.
type change struct {
	links     bool
	nextHops  bool
	gone      bool         // a route or an address went: the kernel may tell that a moment before it is so
	addresses []netip.Addr // addresses of others that came or went, and ours that went
	looks     int          // how often these addresses were looked at already
	places    bool         // links or on-link networks changed: VIPs may belong elsewhere now
	loopback  bool         // lo changed: what was on it may be gone
	warm      bool         // a neighbour that we had managed is not any more
	sysctls   bool
	survey    bool // what is known of rules and routes is not all
}

func (c *change) merge(o change) {
	c.links = c.links || o.links
	c.nextHops = c.nextHops || o.nextHops
	c.gone = c.gone || o.gone
	c.places = c.places || o.places
	c.loopback = c.loopback || o.loopback
	c.warm = c.warm || o.warm
	c.sysctls = c.sysctls || o.sysctls
	c.survey = c.survey || o.survey
	switch {
	case len(o.addresses) == 0:
	case len(c.addresses) == 0:
		c.looks = o.looks
	default:
		c.looks = min(c.looks, o.looks)
	}
	c.addresses = append(c.addresses, o.addresses...)
}

func (c *change) empty() bool {
	return !c.links && !c.nextHops && !c.places && !c.loopback && !c.warm && !c.sysctls && !c.survey && len(c.addresses) == 0
}

// state mirrors the kernel's tables. The watch writes it, everybody reads it.
type state struct {
	mu         sync.RWMutex
	links      map[int]Link
	addresses  map[netip.Addr][]address
	networks   map[network]struct{}
	neighbours map[neighbourKey]neighbour
	gone       int // neighbours with state 0
	ways       ways
	mine       map[netip.Addr]struct{} // VIPs that VIPs owns: local routes to them are no news
}

func newState() *state {
	return &state{
		links:      map[int]Link{},
		addresses:  map[netip.Addr][]address{},
		networks:   map[network]struct{}{},
		neighbours: map[neighbourKey]neighbour{},
		mine:       map[netip.Addr]struct{}{},
	}
}

// apply takes one rtnetlink message into the state and says what it changed.
func (s *state) apply(r reply) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return s.applyLink(r)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return s.applyAddress(r)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return s.applyNeighbour(r)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return s.applyRoute(r)
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP, unix.RTM_NEWRULE, unix.RTM_DELRULE:
		s.ways.apply(r)
		return change{nextHops: true}
	case unix.RTM_NEWNETCONF:
		return change{sysctls: true}
	}
	return change{}
}

func (s *state) applyLink(r reply) change {
	l, ok := parseLink(r.body)
	if !ok {
		return change{}
	}
	old, had := s.links[l.Index]
	if r.typ == unix.RTM_DELLINK {
		delete(s.links, l.Index)
		for key := range s.neighbours {
			if key.link == l.Index {
				s.forget(key)
			}
		}
		return change{links: had, nextHops: had, places: had}
	}
	s.links[l.Index] = l
	if had && old.same(l) {
		return change{}
	}
	// A new link carries no flow yet; its addresses and routes are news of their own.
	return change{links: true, nextHops: had, places: true, loopback: l.Loopback(), sysctls: l.Loopback()}
}

func (s *state) applyAddress(r reply) change {
	a, ok := parseAddress(r.body)
	if !ok {
		return change{}
	}
	ip := a.prefix.Addr()
	list := s.addresses[ip]
	at := -1
	for i, have := range list {
		if have.link == a.link && have.prefix == a.prefix {
			at = i
		}
	}
	switch {
	case r.typ == unix.RTM_NEWADDR && at >= 0:
		list[at] = a // only a lifetime or a flag
		return change{}
	case r.typ == unix.RTM_NEWADDR:
		s.addresses[ip] = append(list, a)
		if a.ours {
			return change{}
		}
	case at < 0:
		return change{}
	case len(list) == 1:
		delete(s.addresses, ip)
	default:
		s.addresses[ip] = append(list[:at:at], list[at+1:]...)
	}
	return change{addresses: []netip.Addr{ip}, nextHops: !a.ours, gone: r.typ == unix.RTM_DELADDR && !a.ours}
}

func (s *state) applyNeighbour(r reply) change {
	key, n, ok := parseNeighbour(r.body)
	if !ok {
		return change{}
	}
	old, had := s.neighbours[key]
	if r.typ == unix.RTM_DELNEIGH {
		if !had || old.state == 0 {
			return change{}
		}
		c := change{}
		if old.mac == "" {
			delete(s.neighbours, key)
		} else {
			s.neighbours[key] = neighbour{mac: old.mac}
			s.gone++
			c = s.boundGone()
		}
		c.warm = old.managed && old.ours
		return c
	}
	if had && old.state == 0 {
		s.gone--
	}
	if n.mac == "" || n.state&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) != 0 {
		n.mac = old.mac
	}
	n.silent = n.state&unix.NUD_FAILED != 0 || (old.silent && n.state&unix.NUD_INCOMPLETE != 0)
	s.neighbours[key] = n
	return change{nextHops: old.mac != "" && n.mac != old.mac, warm: old.managed && old.ours && !n.managed}
}

func (s *state) forget(key neighbourKey) {
	if s.neighbours[key].state == 0 {
		s.gone--
	}
	delete(s.neighbours, key)
}

// boundGone drops what is remembered of deleted neighbours when that grows too long; next hops cached from them are
// then looked up again.
func (s *state) boundGone() change {
	if s.gone <= rememberedGone {
		return change{}
	}
	for key, n := range s.neighbours {
		if n.state == 0 {
			delete(s.neighbours, key)
		}
	}
	s.gone = 0
	return change{nextHops: true}
}

func (s *state) applyRoute(r reply) change {
	rt, ok := parseRoute(r.body)
	if !ok || u32(r.body[8:])&unix.RTM_F_CLONED != 0 {
		return change{}
	}
	s.ways.apply(r)
	if rt.kind == unix.RTN_LOCAL {
		c := change{}
		_, mine := s.mine[rt.dst.Addr()]
		c.nextHops = !mine || !rt.dst.IsSingleIP()
		if r.typ == unix.RTM_DELROUTE && rt.proto == Owner {
			c.addresses = []netip.Addr{rt.dst.Addr()}
		}
		return c
	}
	c := change{nextHops: true, gone: r.typ == unix.RTM_DELROUTE}
	if net, ok := rt.network(); ok {
		_, had := s.networks[net]
		if r.typ == unix.RTM_DELROUTE {
			delete(s.networks, net)
			c.places = had
		} else {
			s.networks[net] = struct{}{}
			c.places = !had
		}
	}
	return c
}

// own says that local routes to these VIPs are our doing. Those of VIPs given up stay until they are many, as the news
// that they are gone has to find them; what is forgotten too early costs an event without need.
func (s *state) own(steps []step, wanted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mine) > 2*(wanted+len(steps))+addressesOnLo {
		s.mine = map[netip.Addr]struct{}{}
	}
	for _, step := range steps {
		s.mine[step.addr] = struct{}{}
	}
}

// holds says whether a VIP of ours is, or can be put back, where it was: its link is up, or has it still.
func (s *state) holds(at step) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	here := func(have address) bool { return have.link == at.link && have.ours }
	return s.links[at.link].Up || slices.ContainsFunc(s.addresses[at.addr], here)
}

// onLink returns the links whose connected networks contain the address, without duplicates.
func (s *state) onLink(addr netip.Addr) []Link {
	var out []Link
	for net := range s.networks {
		if !net.prefix.Contains(addr) || slices.ContainsFunc(out, func(l Link) bool { return l.Index == net.link }) {
			continue
		}
		if l, ok := s.links[net.link]; ok {
			out = append(out, l)
		}
	}
	return out
}

func parseAddress(body []byte) (address, bool) {
	if len(body) < unix.SizeofIfAddrmsg {
		return address{}, false
	}
	a := address{link: int(binary.NativeEndian.Uint32(body[4:]))}
	var ip netip.Addr
	attributes(body, unix.SizeofIfAddrmsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.IFA_LOCAL:
			ip, _ = netip.AddrFromSlice(v)
		case unix.IFA_ADDRESS:
			if !ip.IsValid() { // IPv6 has no IFA_LOCAL without a peer; with one, LOCAL comes later and wins
				ip, _ = netip.AddrFromSlice(v)
			}
		case ifaProto:
			a.ours = len(v) > 0 && v[0] == Owner
		}
	})
	a.prefix = netip.PrefixFrom(ip, int(body[1]))
	return a, ip.IsValid()
}

func parseNeighbour(body []byte) (neighbourKey, neighbour, bool) {
	if len(body) < unix.SizeofNdMsg || (body[0] != unix.AF_INET && body[0] != unix.AF_INET6) {
		return neighbourKey{}, neighbour{}, false
	}
	key := neighbourKey{link: int(int32(binary.NativeEndian.Uint32(body[4:])))}
	n := neighbour{state: binary.NativeEndian.Uint16(body[8:])}
	proxy := body[10]&unix.NTF_PROXY != 0
	attributes(body, unix.SizeofNdMsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.NDA_DST:
			key.addr, _ = netip.AddrFromSlice(v)
		case unix.NDA_LLADDR:
			n.mac = string(bytes.Clone(v))
		case ndaProtocol:
			n.ours = len(v) > 0 && v[0] == Owner
		case ndaFlagsExt:
			n.managed = u32(v)&ntfExtManaged != 0
		}
	})
	// NOARP is multicast, or a link that resolves nothing.
	return key, n, key.addr.IsValid() && !proxy && n.state&unix.NUD_NOARP == 0 && n.state != 0
}

// route is as much of a route as we look at.
type route struct {
	dst     netip.Prefix
	kind    uint8 // RTN_*
	proto   uint8 // RTPROT_*
	table   uint32
	metric  uint32
	oif     int
	gateway netip.Addr
	source  netip.Addr // that packets of this machine itself would have
}

func parseRoute(body []byte) (route, bool) {
	if len(body) < unix.SizeofRtMsg {
		return route{}, false
	}
	rt := route{table: uint32(body[4]), proto: body[5], kind: body[7]}
	var dst netip.Addr
	switch body[0] {
	case unix.AF_INET:
		dst = netip.IPv4Unspecified()
	case unix.AF_INET6:
		dst = netip.IPv6Unspecified()
	default:
		return route{}, false
	}
	attributes(body, unix.SizeofRtMsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(v)
		case unix.RTA_OIF:
			rt.oif = int(u32(v))
		case unix.RTA_GATEWAY:
			rt.gateway, _ = netip.AddrFromSlice(v)
		case unix.RTA_VIA:
			if len(v) > 2 {
				rt.gateway, _ = netip.AddrFromSlice(v[2:])
			}
		case unix.RTA_PREFSRC:
			rt.source, _ = netip.AddrFromSlice(v)
		case unix.RTA_TABLE:
			rt.table = u32(v)
		case unix.RTA_PRIORITY:
			rt.metric = u32(v)
		}
	})
	rt.dst = netip.PrefixFrom(dst, int(body[1]))
	uninteresting := rt.kind == unix.RTN_BROADCAST || rt.kind == unix.RTN_MULTICAST || rt.kind == unix.RTN_ANYCAST
	return rt, dst.IsValid() && !uninteresting
}

// network says whether the route is a connected network, in which the link's neighbours ask for addresses.
func (rt route) network() (network, bool) {
	ok := rt.kind == unix.RTN_UNICAST && !rt.gateway.IsValid() && rt.oif != 0 && rt.dst.Bits() > 0 &&
		!rt.dst.IsSingleIP() && !rt.dst.Addr().IsLinkLocalUnicast() && !rt.dst.Addr().IsMulticast() &&
		(rt.proto == unix.RTPROT_KERNEL || rt.proto == unix.RTPROT_RA)
	return network{link: rt.oif, prefix: rt.dst, table: rt.table, metric: rt.metric}, ok
}
