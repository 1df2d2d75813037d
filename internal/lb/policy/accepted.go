package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"loxilb/internal/lb"
)

// AcceptedConnection is a TCP connection that a socket of this machine has accepted, such as an
// administrator's ssh.
type AcceptedConnection struct {
	Remote, Local netip.AddrPort
	Interface     string // at which its packets arrive; "": unknown

	// The route of answers, if it is known.
	Out    string       // the interface by which they leave
	Route  netip.Prefix // destination of their route in the main table
	Metric int          // metric of the route; 0: the default of the IP version
}

// String describes the connection for humans.
func (s AcceptedConnection) String() string {
	name := "connection"
	if s.Local.Port() == 22 {
		name = "ssh session"
	}
	return fmt.Sprintf("the %s from %s to %s", name, s.Remote, s.Local)
}

// Matches reports whether the connection's packets match a service.
func (s *AcceptedConnection) Matches(k lb.Key) bool {
	at := k.VIP == s.Local.Addr() || k.VIP.IsUnspecified() && k.VIP.Is4() == s.Local.Addr().Is4()
	port := s.Local.Port()
	return at && k.Protocol == lb.TCP && k.Port <= port && port <= max(k.Port, k.PortMax)
}

// Disconnects reports whether packets to this machine that match the rule do not arrive: they are
// dropped or redirected.
func (r Rule) Disconnects() bool { return r.Action == RuleDrop || r.Action == RuleRedirect }

// Disconnected returns the connections that only the rules after a change disconnect. If the
// interface of a connection is unknown, rules with an interface may disconnect it, but do not
// protect it.
func Disconnected(before, after []Rule, accepted []AcceptedConnection) (disconnected []AcceptedConnection) {
	if len(accepted) == 0 || !slices.ContainsFunc(after, Rule.Disconnects) {
		return nil
	}
	old, now, changed := inOrder(before), inOrder(after), changedRules(before, after)
	for i := range accepted {
		if s := &accepted[i]; s.matchesAny(changed) && s.droppedBy(now) && !s.droppedBy(old) {
			disconnected = append(disconnected, *s)
		}
	}
	return disconnected
}

// AcceptedNames lists the first few connections, and the number of the others.
func AcceptedNames(accepted []AcceptedConnection) string {
	const named = 3
	text := make([]string, 0, named+1)
	for i := range accepted[:min(named, len(accepted))] {
		text = append(text, accepted[i].String())
	}
	if more := len(accepted) - named; more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}

// changedRules returns the rules that only one of two lists has. An accepted connection that
// matches none of these is not affected, so a new rule costs one comparison per connection, not one
// per connection and rule.
func changedRules(before, after []Rule) (changed []*Rule) {
	old := make(map[Rule]struct{}, len(before))
	for i := range before {
		old[before[i]] = struct{}{}
	}
	for i := range after {
		if _, same := old[after[i]]; same {
			delete(old, after[i])
			continue
		}
		changed = append(changed, &after[i])
	}
	for i := range before {
		if _, gone := old[before[i]]; gone {
			changed = append(changed, &before[i])
		}
	}
	return changed
}

func (s *AcceptedConnection) matchesAny(rules []*Rule) bool {
	return slices.ContainsFunc(rules, s.matchesRule)
}

// inOrder returns the rules in the order of CompareRules.
func inOrder(list []Rule) []*Rule {
	ordered := make([]*Rule, len(list))
	for i := range list {
		ordered[i] = &list[i]
	}
	slices.SortFunc(ordered, CompareRules)
	return ordered
}

func (s *AcceptedConnection) droppedBy(rules []*Rule) bool {
	for _, r := range rules {
		if s.matchesRule(r) {
			return r.Disconnects()
		}
	}
	return false
}

func (s *AcceptedConnection) matchesRule(r *Rule) bool {
	if r.Interface != "" && r.Interface != s.Interface && (s.Interface != "" || !r.Disconnects()) {
		return false
	}
	return contains(r.Source, s.Remote.Addr()) && contains(r.Destination, s.Local.Addr()) &&
		r.SourcePorts.has(s.Remote.Port()) && r.DestinationPorts.has(s.Local.Port()) &&
		(r.Protocol == 0 && r.ProtocolMax == 0 || r.Protocol <= uint8(lb.TCP) && uint8(lb.TCP) <= max(r.Protocol, r.ProtocolMax))
}

func contains(p netip.Prefix, a netip.Addr) bool { return !p.IsValid() || p.Contains(a) }

func (p RulePorts) has(port uint16) bool { return p.Any() || p.Min <= port && port <= p.Max }
