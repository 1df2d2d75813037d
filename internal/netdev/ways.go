package netdev

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
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

// ways knows whether the way of a packet depends on more than where it goes. What has been seen once to be so stays:
// forgetting it would need all routes in memory, and being wrong would send packets the wrong way.
type ways struct {
	surveyed bool // what was there before the watch is known as well
	losses   int  // how often the watch has missed something
	many     bool // a rule asks for source, protocol or ports; a route has a source, or several next hops
}

func (w *ways) lose() {
	w.surveyed = false
	w.losses++
}

// apply takes a message of a route, a rule or a next hop. Rules by mark or by interface do not count: the data path asks
// for all packets without a mark, and as from lo.
func (w *ways) apply(r reply) {
	switch r.typ {
	case unix.RTM_NEWROUTE:
		w.many = w.many || len(r.body) > 2 && r.body[2] != 0 || hasAttribute(r.body, unix.SizeofRtMsg, unix.RTA_MULTIPATH)
	case unix.RTM_NEWRULE:
		w.many = w.many || len(r.body) > 2 && r.body[2] != 0 ||
			hasAttribute(r.body, fibRuleHeader, fraIPProto, fraSourcePorts, fraDestPorts)
	case unix.RTM_NEWNEXTHOP:
		w.many = w.many || hasAttribute(r.body, nexthopHeader, nhaGroup)
	}
}

func hasAttribute(body []byte, header int, types ...uint16) (found bool) {
	attributes(body, header, func(typ uint16, _ []byte) {
		found = found || slices.Contains(types, typ)
	})
	return found
}

// WaysByDestination says whether all packets to an address take the same way, whoever sent them. False until that is
// known.
func (n *Net) WaysByDestination() bool {
	n.state.mu.RLock()
	defer n.state.mu.RUnlock()
	return n.state.ways.surveyed && !n.state.ways.many
}

// survey looks through all rules and routes when what is known of them is not all, on a connection and in a time of its
// own: a full Internet table takes seconds.
func (n *Net) survey(ctx context.Context, due, events *inbox) {
	for due.wait(ctx, settle) {
		due.take()
		if !n.surveyDue() {
			continue
		}
		if err := n.surveyOnce(); err != nil {
			n.log.Warn("new connections ask the routing table each, as it could not be surveyed", "err", err)
			time.AfterFunc(surveyAgain, func() { due.put(change{survey: true}) })
			continue
		}
		events.put(change{nextHops: true})
	}
}

func (n *Net) surveyDue() bool {
	n.state.mu.RLock()
	defer n.state.mu.RUnlock()
	return !n.state.ways.surveyed
}

func (n *Net) surveyOnce() error {
	conn, err := n.ns.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.close() }()
	n.state.mu.RLock()
	losses := n.state.ways.losses
	n.state.mu.RUnlock()
	var found ways
	if err := found.read(conn); err != nil {
		return err
	}
	n.state.mu.Lock()
	defer n.state.mu.Unlock()
	w := &n.state.ways
	w.many = w.many || found.many
	w.surveyed = w.losses == losses
	return nil
}

// read takes all that there is.
func (w *ways) read(c *conn) error {
	groups := newRequest(0, 0, make([]byte, nexthopHeader)).attr(nhaGroups, nil).b[nlmsgHeader:]
	for _, table := range []struct {
		what   string
		typ    uint16
		header []byte
	}{
		{"IPv4 rules", unix.RTM_GETRULE, familyHeader(unix.AF_INET, fibRuleHeader)},
		{"IPv6 rules", unix.RTM_GETRULE, familyHeader(unix.AF_INET6, fibRuleHeader)},
		{"groups of next hops", unix.RTM_GETNEXTHOP, groups},
		{"IPv4 routes", unix.RTM_GETROUTE, routeHeader(unix.AF_INET, unix.RTPROT_UNSPEC)},
		{"IPv6 routes", unix.RTM_GETROUTE, routeHeader(unix.AF_INET6, unix.RTPROT_UNSPEC)},
	} {
		err := c.dump(table.typ, table.header, func(r reply) error {
			w.apply(r)
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", table.what, err)
		}
	}
	return nil
}
