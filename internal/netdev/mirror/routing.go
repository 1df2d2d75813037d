package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/netdev/netlink"
)

// Numbers of the kernel's uapi that x/sys/unix does not have.
const (
	fraIPProto     = 22 // FRA_IP_PROTO
	fraSourcePorts = 23 // FRA_SPORT_RANGE
	fraDestPorts   = 24 // FRA_DPORT_RANGE
	fibRuleHeader  = 12 // struct fib_rule_hdr
	nexthopHeader  = 8  // struct nhmsg
	nhaGroup       = 2  // NHA_GROUP
	nhaGroups      = 9  // NHA_GROUPS: of a dump, groups alone
)

// surveyAgain is how long to wait when rules and routes could not be read.
const surveyAgain = 5 * time.Second

// routing knows whether the route of a packet depends on more than its destination. What has been seen once to be so
// stays: forgetting it would need all routes in memory, and being wrong would send packets the wrong way.
type routing struct {
	surveyed bool // what was there before the subscription is known as well
	losses   int  // how often messages were lost
	// sourceDependent: a rule asks for source, protocol or ports; a route has a source, or several next hops
	sourceDependent bool
}

func (r *routing) lose() {
	r.surveyed = false
	r.losses++
}

// apply takes a message of a route, a rule or a next hop. Rules by mark or by interface do not count: the data path asks
// for all packets without a mark, and as from lo.
func (r *routing) apply(m netlink.Message) {
	switch m.Type {
	case unix.RTM_NEWROUTE:
		r.sourceDependent = r.sourceDependent || len(m.Body) > 2 && m.Body[2] != 0 || hasAttribute(m.Body, unix.SizeofRtMsg, unix.RTA_MULTIPATH)
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

// ByDestination says whether all packets to an address take the same route, whoever sent them. False until that is known.
func (m *Mirror) ByDestination() bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return m.tables.routing.surveyed && !m.tables.routing.sourceDependent
}

// Surveyed says whether all rules and routes are known: ByDestination is not false for want of knowledge.
func (m *Mirror) Surveyed() bool {
	m.tables.mu.RLock()
	defer m.tables.mu.RUnlock()
	return m.tables.routing.surveyed
}

// survey looks through all rules and routes when what is known of them is not all, on a connection and in a time of its
// own: a full Internet table takes seconds.
func (m *Mirror) survey(ctx context.Context, on func(Change)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.unsurveyed:
		}
		if m.Surveyed() {
			continue
		}
		if err := m.surveyOnce(); err != nil {
			m.log.Warn("new connections ask the routing table each, as it could not be surveyed", "error", err)
			time.AfterFunc(surveyAgain, m.surveySoon)
			continue
		}
		on(Change{NextHops: true})
	}
}

func (m *Mirror) surveySoon() {
	select {
	case m.unsurveyed <- struct{}{}:
	default:
	}
}

func (m *Mirror) surveyOnce() error {
	conn, err := m.ns.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	m.tables.mu.RLock()
	losses := m.tables.routing.losses
	m.tables.mu.RUnlock()
	var found routing
	if err := found.read(conn); err != nil {
		return err
	}
	m.tables.mu.Lock()
	defer m.tables.mu.Unlock()
	r := &m.tables.routing
	r.sourceDependent = r.sourceDependent || found.sourceDependent
	r.surveyed = r.losses == losses
	return nil
}

// read takes all that there is.
func (r *routing) read(c *netlink.Conn) error {
	groups := netlink.NewRequest(0, 0, make([]byte, nexthopHeader)).Attr(nhaGroups, nil).Body()
	for _, table := range []struct {
		what   string
		typ    uint16
		header []byte
	}{
		{"IPv4 rules", unix.RTM_GETRULE, netlink.Header(unix.AF_INET, fibRuleHeader)},
		{"IPv6 rules", unix.RTM_GETRULE, netlink.Header(unix.AF_INET6, fibRuleHeader)},
		{"groups of next hops", unix.RTM_GETNEXTHOP, groups},
		{"IPv4 routes", unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET, unix.RTPROT_UNSPEC)},
		{"IPv6 routes", unix.RTM_GETROUTE, netlink.RouteHeader(unix.AF_INET6, unix.RTPROT_UNSPEC)},
	} {
		if err := c.Dump(table.typ, table.header, r.apply); err != nil {
			return fmt.Errorf("list %s: %w", table.what, err)
		}
	}
	return nil
}
