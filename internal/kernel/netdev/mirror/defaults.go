package mirror

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Constants of the kernel's uapi that x/sys/unix does not have.
const (
	rtaNextHop    = 30 // RTA_NH_ID
	nexthopHeader = 8  // struct nhmsg
	nhaID         = 1  // NHA_ID
	nhaGroup      = 2  // NHA_GROUP: struct nexthop_grp, 8 bytes each
	nhaLink       = 5  // NHA_OIF
	nhaGateway    = 6  // NHA_GATEWAY
)

// defaults are the default routes of the main table. They follow the kernel's messages. The kernel
// sends none for IPv4 routes that it removes together with their link, their source address or a
// next hop of `ip nexthop`: these are removed here by the same rules. If the rules do not decide,
// all routes are read again.
type defaults struct {
	routes  []defaultRoute
	objects map[uint32]nextHopObject // of `ip nexthop`, by id
}

// defaultKey identifies default routes; several may share one.
type defaultKey struct {
	family byte
	tos    byte
	from   netip.Prefix // IPv6 routes for some sources
	metric uint32
}

type defaultRoute struct {
	defaultKey
	kind   byte // RTN_*
	proto  byte
	source netip.Addr // of packets on it; if that is removed, the route is, too
	object uint32     // id of its next hop object; 0: none
	hops   []Hop
}

// nextHopObject is a next hop of `ip nexthop`, or a group of them.
type nextHopObject struct {
	hop   Hop
	group []uint32
}

func (r defaultRoute) equal(o defaultRoute) bool {
	return r.defaultKey == o.defaultKey && r.kind == o.kind && r.proto == o.proto && r.object == o.object && slices.Equal(r.hops, o.hops)
}

// mayChangeDefaults reports whether a message may change the default routes. It must be cheap: a
// storm has a million messages.
func mayChangeDefaults(m netlink.Message) bool {
	switch m.Type {
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(m.Body) >= unix.SizeofRtMsg && m.Body[1] == 0
	}
	return false
}

// apply applies a message. It returns true if the message does not fit the known state, so all
// must be read again.
func (d *defaults) apply(m netlink.Message) (uncertain bool) {
	switch m.Type {
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		d.applyObject(m)
		return false
	}
	r, ok := parseDefault(m.Body)
	switch {
	case !ok:
		return false
	case m.Type == unix.RTM_DELROUTE && r.family == unix.AF_INET:
		return d.remove(r)
	case m.Type == unix.RTM_DELROUTE:
		return d.removeHops(r)
	case slices.ContainsFunc(d.routes, r.equal):
		return false
	case m.Flags&unix.NLM_F_REPLACE != 0:
		uncertain = d.replace(r)
	case r.family == unix.AF_INET6: // other routes of the same key, which the kernel merges with it
		d.routes = slices.DeleteFunc(d.routes, func(o defaultRoute) bool {
			return o.defaultKey == r.defaultKey && len(o.hops) > 0 && !slices.ContainsFunc(o.hops, func(h Hop) bool { return !slices.Contains(r.hops, h) })
		})
	}
	d.routes = append(d.routes, r)
	return uncertain
}

func (d *defaults) remove(r defaultRoute) (uncertain bool) {
	if i := slices.IndexFunc(d.routes, r.equal); i >= 0 {
		d.routes = slices.Delete(d.routes, i, i+1)
		return false
	}
	return slices.ContainsFunc(d.routes, func(o defaultRoute) bool { return o.defaultKey == r.defaultKey })
}

// removeHops removes next hops of an IPv6 route: the kernel's message has only the removed ones.
func (d *defaults) removeHops(r defaultRoute) (uncertain bool) {
	if i := slices.IndexFunc(d.routes, r.equal); i >= 0 {
		d.routes = slices.Delete(d.routes, i, i+1)
		return false
	}
	found, alike := false, false
	for i := range d.routes {
		o := &d.routes[i]
		if o.defaultKey != r.defaultKey {
			continue
		}
		alike = true
		left := slices.DeleteFunc(slices.Clone(o.hops), func(h Hop) bool { return slices.Contains(r.hops, h) })
		found = found || len(left) < len(o.hops)
		o.hops = left
	}
	d.routes = slices.DeleteFunc(d.routes, func(o defaultRoute) bool {
		return o.defaultKey == r.defaultKey && len(o.hops) == 0 && o.object == 0 && o.kind == unix.RTN_UNICAST
	})
	return alike && !found
}

// replace removes the route that r replaces in the kernel: the first route of the same key. It
// returns true if there are several, since only the kernel knows their order.
func (d *defaults) replace(r defaultRoute) (uncertain bool) {
	before := len(d.routes)
	d.routes = slices.DeleteFunc(d.routes, func(o defaultRoute) bool { return o.defaultKey == r.defaultKey })
	return before-len(d.routes) > 1
}

func (d *defaults) applyObject(m netlink.Message) {
	id, o := parseObject(m.Body)
	if m.Type == unix.RTM_NEWNEXTHOP {
		d.objects[id] = o
		return
	}
	delete(d.objects, id)
	d.routes = slices.DeleteFunc(d.routes, func(r defaultRoute) bool { return r.object == id })
}

// linkDown removes the routes that the kernel removes with a link: next hops of `ip nexthop` if the
// link has no carrier, and routes if it is down. It returns true if a default route used the link.
func (d *defaults) linkDown(link int, down, noCarrier bool) (uncertain bool) {
	there := func(h Hop) bool { return h.Link == link }
	uncertain = slices.ContainsFunc(d.list(), there)
	if down || noCarrier {
		maps.DeleteFunc(d.objects, func(_ uint32, o nextHopObject) bool { return o.group == nil && there(o.hop) })
	}
	if down {
		d.routes = slices.DeleteFunc(d.routes, func(r defaultRoute) bool {
			return len(r.hops) > 0 && !slices.ContainsFunc(r.hops, func(h Hop) bool { return !there(h) })
		})
	}
	return uncertain
}

// addressGone reports whether the kernel may have removed a route together with an address: the
// route's source address, or the last address of its link.
func (d *defaults) addressGone(a netip.Addr, link int) (uncertain bool) {
	return slices.ContainsFunc(d.routes, func(r defaultRoute) bool {
		return r.source == a || slices.ContainsFunc(r.hops, func(h Hop) bool { return h.Link == link })
	})
}

// list returns the next hops of all default routes, in order and without duplicates.
func (d *defaults) list() []Hop {
	var out []Hop
	for _, r := range d.routes {
		if r.kind != unix.RTN_UNICAST {
			continue
		}
		out = append(out, d.expand(r)...)
	}
	out = slices.DeleteFunc(out, func(h Hop) bool { return h.Link == 0 })
	slices.SortFunc(out, func(a, b Hop) int { return cmp.Or(cmp.Compare(a.Link, b.Link), a.Via.Compare(b.Via)) })
	return slices.Compact(out)
}

func (d *defaults) expand(r defaultRoute) []Hop {
	o, ok := d.objects[r.object]
	if r.object == 0 || !ok {
		return r.hops
	}
	if o.group == nil {
		return []Hop{o.hop}
	}
	var out []Hop
	for _, id := range o.group {
		if member, ok := d.objects[id]; ok {
			out = append(out, member.hop)
		}
	}
	return out
}

func parseDefault(body []byte) (r defaultRoute, ok bool) {
	if len(body) < unix.SizeofRtMsg || body[1] != 0 || (body[0] != unix.AF_INET && body[0] != unix.AF_INET6) {
		return defaultRoute{}, false
	}
	r = defaultRoute{defaultKey: defaultKey{family: body[0], tos: body[3]}, proto: body[5], kind: body[7]}
	table := uint32(body[4])
	hop := Hop{}
	netlink.Attributes(body, unix.SizeofRtMsg, func(typ uint16, v []byte) {
		switch typ {
		case unix.RTA_TABLE:
			table = netlink.Uint32(v)
		case unix.RTA_PRIORITY:
			r.metric = netlink.Uint32(v)
		case unix.RTA_SRC:
			from, _ := netip.AddrFromSlice(v)
			r.from = netip.PrefixFrom(from, int(body[2]))
		case unix.RTA_PREFSRC:
			r.source, _ = netip.AddrFromSlice(v)
		case rtaNextHop:
			r.object = netlink.Uint32(v)
		case unix.RTA_OIF:
			hop.Link = int(netlink.Uint32(v))
		case unix.RTA_GATEWAY:
			hop.Via, _ = netip.AddrFromSlice(v)
		case unix.RTA_VIA:
			hop.Via = via(v)
		case unix.RTA_MULTIPATH:
			r.hops = parseHops(v)
		}
	})
	if r.hops == nil && hop.Link != 0 {
		r.hops = []Hop{hop}
	}
	return r, table == unix.RT_TABLE_MAIN
}

// via parses a gateway of the other family: the family, then the address.
func via(v []byte) netip.Addr {
	if len(v) < 2 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(v[2:])
	return a
}

// parseHops parses the next hops of a multipath route.
func parseHops(b []byte) (out []Hop) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			break
		}
		hop := Hop{Link: int(netlink.Uint32(b[4:]))}
		netlink.Attributes(b[:size], unix.SizeofRtNexthop, func(typ uint16, v []byte) {
			switch typ {
			case unix.RTA_GATEWAY:
				hop.Via, _ = netip.AddrFromSlice(v)
			case unix.RTA_VIA:
				hop.Via = via(v)
			}
		})
		out = append(out, hop)
		b = b[min(len(b), (size+3)&^3):]
	}
	return out
}

func parseObject(body []byte) (id uint32, o nextHopObject) {
	netlink.Attributes(body, nexthopHeader, func(typ uint16, v []byte) {
		switch typ {
		case nhaID:
			id = netlink.Uint32(v)
		case nhaLink:
			o.hop.Link = int(netlink.Uint32(v))
		case nhaGateway:
			o.hop.Via, _ = netip.AddrFromSlice(v)
		case nhaGroup:
			o.group = []uint32{}
			for ; len(v) >= 8; v = v[8:] {
				o.group = append(o.group, netlink.Uint32(v))
			}
		}
	})
	return id, o
}
