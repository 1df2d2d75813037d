package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// describe explains the program's actions, in the order of the packet's path.
func (i *inquiry) describe(r *dryrun.Result) (*Answer, error) {
	a := &i.answer
	i.addConnection(r)
	i.addRule(r)
	s := i.serviceOf(r)
	i.addService(r, s)
	if s != nil {
		a.Service = s.Key.String()
		i.addOwner(r, s)
		i.addEndpoint(r, s)
	}
	i.addSource(r, s)
	if err := i.addPath(r, s); err != nil {
		return nil, err
	}
	i.addAttached(r, s)
	if s != nil && r.Entry != nil && !r.Entry.Reply {
		i.addAnswers(r, s)
	}
	return i.conclude(r, s), nil
}

// serviceOf returns the packet's service as users configured it, or nil.
func (i *inquiry) serviceOf(r *dryrun.Result) *lb.Service {
	switch {
	case r.Opening != nil && r.Opening.Found:
		return i.service(r.Opening.Service)
	case r.Entry != nil && r.Entry.OfService:
		return i.service(r.Entry.Service)
	}
	return nil
}

func (i *inquiry) service(key bpf.TcServiceKey) *lb.Service {
	if !key.Ranged() {
		at := bpf.AddrPort(key.Vip, key.Port)
		s, ok := i.services.Get(lb.Key{VIP: at.Addr(), Port: at.Port(), Protocol: lb.Protocol(key.Protocol).OfService(), Mark: key.Mark})
		if ok {
			return &s
		}
	}
	for s := range i.services.All() {
		if compile.Key(s.Key) == key {
			return &s
		}
	}
	return nil
}

func (i *inquiry) addConnection(r *dryrun.Result) {
	a, t := &i.answer, i.tracked
	switch {
	case !r.Existing:
		a.add("connection", OK, "new connection (no existing entry)")
		return
	case t == nil:
		a.add("connection", OK, "a connection that just ended")
		return
	}
	a.Connection = t.State
	kind := "client packet of an existing connection"
	if t.Reply {
		kind = "answer of an existing connection"
	}
	a.add("connection", OK, "%s: %s, endpoint %s, %s and %d bytes so far, idle for %s", kind, t.State, t.Endpoint, plural(int(t.Traffic.Packets), "packet"), t.Traffic.Bytes, r.Silent)
	if r.Ended {
		a.add("connection", OK, "that connection is over: the packet is treated as the first of a new one")
	}
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func (i *inquiry) addRule(r *dryrun.Result) {
	rules := i.Desired.Rules
	n := rules.Len(i.now)
	switch {
	case n == 0 && !r.HasRule:
	case !r.HasRule && r.Existing && !r.Ended:
		i.answer.add("rule", OK, "%s: evaluated when the connection opened and after each change of the rules", plural(n, "firewall rule"))
	case !r.HasRule:
		i.answer.add("rule", OK, "none of %s matches", plural(n, "firewall rule"))
	default:
		text, state := "a rule that was deleted", OK
		for rule := range rules.All(i.now) {
			if compile.RuleIdentity(&rule) == r.Rule {
				text = fmt.Sprintf("%q", rule.String())
				if rule.Action == policy.RuleDrop {
					state = Failed
				}
				if i.Gateways && rule.Action == policy.RuleSNAT && rule.OnDefault && !lb.OwnsSource(rule.ToSource, i.Desired.Instances.OfThisNode(i.now)) {
					text += fmt.Sprintf("; another node owns %s, and the kernel leads packets there through its tunnel", rule.ToSource)
				}
				if rule.Record {
					text += ", and a copy is recorded"
				}
			}
		}
		i.answer.add("rule", state, "the first matching rule of %s: %s", plural(n, "firewall rule"), text)
	}
}

func (i *inquiry) addService(r *dryrun.Result, s *lb.Service) {
	a := &i.answer
	if s != nil {
		name := ""
		if s.Name != "" {
			name = fmt.Sprintf(" (%s)", s.Name)
		}
		states, _ := i.states(s)
		a.add("service", OK, "%s%s, mode %s, state %s", s.Key, name, s.Mode, states.State)
		return
	}
	if r.Existing && !r.Ended || r.Opening != nil && r.Opening.Outwards {
		return
	}
	_, to := i.ends()
	if want, ok := i.services.Reach(lb.Key{VIP: to.Addr(), Port: to.Port(), Protocol: i.Protocol, Mark: i.Mark}); ok {
		if r.HasRule { // it decided before the service
			return
		}
		a.add("service", Failed, "%s is configured, but not applied to the data path: see loxicmd get status --failed", want.Key)
		return
	}
	var others []string
	for s := range i.services.All() {
		if s.VIP == to.Addr() && len(others) < 8 {
			others = append(others, strings.TrimPrefix(s.Key.String(), netip.AddrPortFrom(s.VIP, 0).Addr().String()))
		}
	}
	switch {
	case len(others) > 0:
		a.add("service", Warning, "no service for %s/%s; %s has %s", to, i.Protocol, to.Addr(), strings.Join(others, ", "))
	default:
		a.add("service", Warning, "none: %s is not a VIP of any service", to.Addr())
	}
}

// addSource adds the source address that the endpoint sees.
func (i *inquiry) addSource(r *dryrun.Result, s *lb.Service) {
	e := r.Entry
	if e == nil || r.Outcome != dryrun.Forwards && r.Outcome != dryrun.Delivers {
		return
	}
	a := &i.answer
	a.Source = e.Source
	switch {
	case e.Reply:
		a.add("source", OK, "the client %s sees %s", e.Target, e.Source)
	case e.Direct:
		a.add("source", OK, "the endpoint sees %s, and the VIP as destination: it must own the VIP, and answers the client directly", e.Source)
	case e.Family:
		a.add("source", OK, "the endpoint sees %s, an address of this machine, because its IP version differs from the client's", i.portNote(r))
	case !e.SourceIsOurs && s != nil && s.Mode == lb.ModeAuto:
		a.add("source", OK, "the endpoint sees the client's own address, %s: it is on this node, so its answers pass it", e.Source)
	case !e.SourceIsOurs:
		a.add("source", OK, "the endpoint sees the client's own address, %s: its answers must come back through this machine", e.Source)
	default:
		a.add("source", OK, "the endpoint sees %s instead of the client's, %s", i.portNote(r), i.whySource(r, s))
	}
}

// portNote returns the source address and port. It describes a random port as free, since it
// differs each time.
func (i *inquiry) portNote(r *dryrun.Result) string {
	if r.Existing && !r.Ended || r.Entry.Source.Port() == i.From.Port() {
		return r.Entry.Source.String()
	}
	return r.Entry.Source.Addr().String() + " and a free port"
}

// onThisNode reports whether an endpoint of a service in mode auto sees clients' addresses.
func (i *inquiry) onThisNode(s *lb.Service, at netip.AddrPort) bool {
	stats, _ := i.DataPath.ServiceStats(s.Key)
	for n := range min(len(s.Endpoints), len(stats.Endpoints)) {
		if isAt(&s.Endpoints[n], at) {
			return stats.Endpoints[n].Source == ""
		}
	}
	return false
}

func (i *inquiry) whySource(r *dryrun.Result, s *lb.Service) string {
	switch {
	case s == nil:
		return "set by a firewall rule or --egress"
	case len(s.SNAT) > 0:
		return "one of the service's own (--snat)"
	case s.Mode == lb.ModeAuto && i.onThisNode(s, r.Entry.Endpoint):
		return "because answers within the endpoint's network would bypass this machine"
	case s.Mode == lb.ModeAuto:
		return "because it is not behind a veth or bridge of this node: its answers to clients might bypass it"
	case s.Mode == lb.ModeDefault:
		return "because answers within the endpoint's network would bypass this machine"
	}
	return "set by mode " + s.Mode.String()
}
