package mirror

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/host/retry"
	"loxilb/internal/kernel/netdev/netlink"
)

// Numbers of the kernel's uapi that x/sys/unix does not have.
const (
	fraIPProto     = 22 // FRA_IP_PROTO
	fraSourcePorts = 23 // FRA_SPORT_RANGE
	fraDestPorts   = 24 // FRA_DPORT_RANGE
	fibRuleHeader  = 12 // struct fib_rule_hdr
)

const (
	// surveyShare bounds the share of time of surveys: a survey of a full Internet table takes
	// two seconds, and is followed by a pause of 40 seconds.
	surveyShare = 20
	// maxReplay bounds the changes that are kept while a survey runs.
	maxReplay = 1 << 14
)

// routing tracks whether the route of a packet depends on more than its destination, and the
// default routes. Other routes are not kept: a full Internet table has a million.
type routing struct {
	surveyed bool // all routes and rules were read since the last loss
	losses   int  // how often messages were lost
	// sourceDependent is set once a rule was seen that matches source, protocol or ports, or a
	// route with a source or several next hops. It stays set: clearing it would need all routes
	// in memory, and a wrong value would misroute packets.
	sourceDependent bool

	defaults defaults
	known    bool // defaults were read once
	dirty    bool // a default route may have been removed without a message
	gaps     int  // how often dirty was set

	surveying bool
	replay    []func(*defaults) bool // changes during the survey; each may be older or newer than what was read
}

func newRouting() routing { return routing{defaults: defaults{objects: map[uint32]nextHopObject{}}} }

// markLost records that messages were lost, so all must be read again.
func (r *routing) markLost() {
	r.surveyed = false
	r.losses++
}

func (r *routing) markDirty() {
	r.dirty = true
	r.gaps++
}

// apply applies a message about a route, a rule or a next hop.
func (r *routing) apply(m netlink.Message) {
	r.check(m)
	if !mayChangeDefaults(m) {
		return
	}
	if r.surveying {
		m.Body = bytes.Clone(m.Body)
	}
	r.change(func(d *defaults) bool { return d.apply(m) })
}

// change applies f to the default routes. During a survey, f is applied again to the routes that
// the survey finds. f returns true if all must be read again.
func (r *routing) change(f func(*defaults) (uncertain bool)) {
	switch {
	case !r.surveying:
	case len(r.replay) == maxReplay:
		r.markDirty()
	default:
		r.replay = append(r.replay, f)
	}
	if f(&r.defaults) {
		r.markDirty()
	}
}

// check checks whether a message makes routes depend on the source. Rules by mark or by interface
// do not count: the data path looks up all packets without a mark, and as from lo.
func (r *routing) check(m netlink.Message) {
	switch m.Type {
	case unix.RTM_NEWROUTE:
		r.sourceDependent = r.sourceDependent || len(m.Body) > 2 && m.Body[2] != 0 ||
			hasAttribute(m.Body, unix.SizeofRtMsg, unix.RTA_MULTIPATH)
	case unix.RTM_NEWRULE:
		r.sourceDependent = r.sourceDependent || len(m.Body) > 2 && m.Body[2] != 0 ||
			hasAttribute(m.Body, fibRuleHeader, fraIPProto, fraSourcePorts, fraDestPorts)
	case unix.RTM_NEWNEXTHOP:
		r.sourceDependent = r.sourceDependent || hasAttribute(m.Body, nexthopHeader, nhaGroup)
	}
}

func hasAttribute(body []byte, header int, types ...uint16) (found bool) {
	netlink.Attributes(body, header, func(typ uint16, _ []byte) {
		found = found || slices.Contains(types, typ)
	})
	return found
}

// ByDestination reports whether all packets to an address take the same route, from any source. It
// is false until that is known.
func (m *Mirror) ByDestination() bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return m.tables.routing.surveyed && !m.tables.routing.sourceDependent
}

// DefaultRoutes returns the next hops of the default routes of the main table, in order. known is
// false while they are being read.
func (m *Mirror) DefaultRoutes() (list []Hop, known bool) {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return m.tables.routing.defaults.list(), m.tables.routing.known
}

// Surveyed reports whether all rules and routes are known.
func (m *Mirror) Surveyed() bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return m.tables.routing.surveyed && !m.tables.routing.dirty
}

// survey reads all rules and routes whenever they are not all known. It has its own connection and
// goroutine, since a full Internet table takes seconds.
func (m *Mirror) survey(ctx context.Context, on func(Change)) {
	loop := retry.New("rules and routes are known; until then each new connection queries the routing table", m.log)
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.unsurveyed:
		}
		if m.Surveyed() {
			continue
		}
		start := time.Now()
		c, err := m.surveyOnce()
		rest := surveyShare * time.Since(start)
		if err != nil {
			rest = max(rest, loop.Failed(err))
			m.surveySoon()
		} else {
			loop.Worked()
			on(c)
		}
		if !monotime.Sleep(ctx, rest) {
			return
		}
	}
}

func (m *Mirror) surveySoon() {
	select {
	case m.unsurveyed <- struct{}{}:
	default:
	}
}

func (m *Mirror) surveyOnce() (Change, error) {
	conn, err := m.ns.Dial()
	if err != nil {
		return Change{}, err
	}
	defer func() { _ = conn.Close() }()
	r := &m.tables.routing
	m.tables.mu.Lock()
	losses, gaps := r.losses, r.gaps
	r.surveying, r.replay = true, nil
	m.tables.mu.Unlock()
	found := newRouting()
	err = found.read(conn)
	m.tables.mu.Lock()
	defer m.tables.mu.Unlock()
	replay := r.replay
	r.surveying, r.replay = false, nil
	if err != nil {
		return Change{}, err
	}
	r.dirty = r.gaps != gaps
	for _, f := range replay {
		if f(&found.defaults) {
			r.markDirty()
		}
	}
	before, knew := r.defaults.list(), r.known
	r.defaults, r.known = found.defaults, true
	r.sourceDependent = r.sourceDependent || found.sourceDependent
	r.surveyed = r.losses == losses
	if !r.surveyed || r.dirty {
		m.surveySoon()
	}
	return Change{NextHops: true, Defaults: !knew || !slices.Equal(before, r.defaults.list())}, nil
}

// read reads everything.
func (r *routing) read(c *netlink.Conn) error {
	for _, table := range []struct {
		what   string
		typ    uint16
		header []byte
	}{
		{"IPv4 rules", unix.RTM_GETRULE, netlink.Header(unix.AF_INET, fibRuleHeader)},
		{"IPv6 rules", unix.RTM_GETRULE, netlink.Header(unix.AF_INET6, fibRuleHeader)},
		{"next hops", unix.RTM_GETNEXTHOP, make([]byte, nexthopHeader)},
		{"IPv4 routes", unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET, unix.RTPROT_UNSPEC)},
		{"IPv6 routes", unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET6, unix.RTPROT_UNSPEC)},
	} {
		if err := c.Dump(table.typ, table.header, r.apply); err != nil {
			return fmt.Errorf("list %s: %w", table.what, err)
		}
	}
	return nil
}
