package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"loxilb/internal/lb"
)

// Session is a TCP connection that a socket of this machine has accepted, such as an
// administrator's ssh.
type Session struct {
	Remote, Local netip.AddrPort
	Interface     string // at which its packets arrive; "": unknown

	// The route of answers, if it is known.
	Out    string       // the interface by which they leave
	Route  netip.Prefix // destination of their route in the main table
	Metric int          // metric of the route; 0: the default of the IP version
}

// String describes the session for humans.
func (s Session) String() string {
	name := "connection"
	if s.Local.Port() == 22 {
		name = "ssh session"
	}
	return fmt.Sprintf("the %s from %s to %s", name, s.Remote, s.Local)
}

// Matches reports whether the session's packets match a service.
func (s *Session) Matches(k lb.Key) bool {
	at := k.VIP == s.Local.Addr() || k.VIP.IsUnspecified() && k.VIP.Is4() == s.Local.Addr().Is4()
	port := s.Local.Port()
	return at && k.Protocol == lb.TCP && k.Port <= port && port <= max(k.Port, k.PortMax)
}

// Disconnects reports whether packets to this machine that match the rule do not arrive: they are
// dropped or redirected.
func (r Rule) Disconnects() bool { return r.Action == RuleDrop || r.Action == RuleRedirect }

// Disconnected returns the sessions that only the rules after a change disconnect. If the interface
// of a session is unknown, rules with an interface may disconnect it, but do not protect it.
func Disconnected(before, after []Rule, sessions []Session) (disconnected []Session) {
	if len(sessions) == 0 || !slices.ContainsFunc(after, Rule.Disconnects) {
		return nil
	}
	old, now, changed := inOrder(before), inOrder(after), changedRules(before, after)
	for i := range sessions {
		if s := &sessions[i]; s.matchesAny(changed) && s.droppedBy(now) && !s.droppedBy(old) {
			disconnected = append(disconnected, *s)
		}
	}
	return disconnected
}

// SessionNames lists the first few sessions, and the number of the others.
func SessionNames(sessions []Session) string {
	const named = 3
	text := make([]string, 0, named+1)
	for i := range sessions[:min(named, len(sessions))] {
		text = append(text, sessions[i].String())
	}
	if more := len(sessions) - named; more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}

// changedRules returns the rules that only one of two lists has. A session that matches none of
// these is not affected, so a new rule costs one comparison per session, not one per session and
// rule.
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

func (s *Session) matchesAny(rules []*Rule) bool {
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

func (s *Session) droppedBy(rules []*Rule) bool {
	for _, r := range rules {
		if s.matchesRule(r) {
			return r.Disconnects()
		}
	}
	return false
}

func (s *Session) matchesRule(r *Rule) bool {
	if r.Interface != "" && r.Interface != s.Interface && (s.Interface != "" || !r.Disconnects()) {
		return false
	}
	return contains(r.Source, s.Remote.Addr()) && contains(r.Destination, s.Local.Addr()) &&
		r.SourcePorts.has(s.Remote.Port()) && r.DestinationPorts.has(s.Local.Port()) &&
		(r.Protocol == 0 && r.ProtocolMax == 0 || r.Protocol <= uint8(lb.TCP) && uint8(lb.TCP) <= max(r.Protocol, r.ProtocolMax))
}

func contains(p netip.Prefix, a netip.Addr) bool { return !p.IsValid() || p.Contains(a) }

func (p RulePorts) has(port uint16) bool { return p.Any() || p.Min <= port && port <= p.Max }
