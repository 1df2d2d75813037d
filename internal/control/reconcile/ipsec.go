package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// ipsecShare bounds the share of time for following policies, however fast they change: a quarter.
const ipsecShare = 4

// PolicyReader reads the kernel's policies of IPsec: a *netdev.Net.
type PolicyReader interface {
	IPsecPolicies() ([]netdev.IPsecPolicy, error)
	FollowIPsec(ctx context.Context, changed func())
	Addresses() []netip.Addr
}

// IPsec prevents packets from leaving in clear text if an IPsec policy of the kernel blocks or
// encrypts them: the data path refuses them, and endpoints whose packets are all refused count as
// down.
type IPsec struct {
	*Task
	reader  PolicyReader
	table   func(bpf.RuleTable) error
	desired *desired.State
	health  *Health
	ignores bool   // packets that policies refuse are sent nevertheless
	changed func() // called when refusals may have changed; nil: not needed
	current currentPolicies
}

// NewIPsec returns an IPsec. table writes the policies to the data path. With ignores, policies are
// only reported.
func NewIPsec(r PolicyReader, table func(bpf.RuleTable) error, ignores bool, s *desired.State, h *Health, o Observers) *IPsec {
	i := &IPsec{reader: r, table: table, ignores: ignores, desired: s, health: h}
	i.current.source = h.probes.policies.source
	i.Task = NewTask("IPsec policies", ipsecShare, i.apply, o)
	return i
}

// FollowRefusals sets the function that is called when refusals may have changed. It must be called
// before Run.
func (i *IPsec) FollowRefusals(f func()) { i.changed = f }

// Run follows the policies until ctx ends.
func (i *IPsec) Run(ctx context.Context) {
	i.Mark() // before the task runs: it would report Idle without work
	go i.reader.FollowIPsec(ctx, i.Mark)
	i.Task.Run(ctx)
}

// Ignores reports whether policies are only reported.
func (i *IPsec) Ignores() bool { return i.ignores }

func (i *IPsec) apply(context.Context) error {
	policies, err := i.reader.IPsecPolicies()
	if err != nil {
		return err
	}
	list := ipsecPolicies(policies)
	table, failed := compile.IPsec(list)
	if failed != nil {
		list = refuseEverything(failed)
		table, err = compile.IPsec(list)
	}
	if i.ignores {
		table = bpf.RuleTable{}
	}
	if err = errors.Join(err, i.table(table)); err == nil {
		i.publish(list)
	}
	return errors.Join(failed, err)
}

// refuseEverything returns policies that refuse all packets, in place of policies that the data
// path has no room for.
func refuseEverything(why error) (list []policy.IPsecPolicy) {
	for _, whole := range []string{"0.0.0.0/0", "::/0"} {
		whole := netip.MustParsePrefix(whole)
		list = append(list, policy.IPsecPolicy{Source: whole, Destination: whole, Action: policy.IPsecRefuse, Text: why.Error()})
	}
	return list
}

// publish makes the policies current, and marks services if they have changed.
func (i *IPsec) publish(list []policy.IPsecPolicy) {
	now := &policies{list: list, since: time.Now(), local: map[netip.Addr]bool{}}
	for _, a := range i.reader.Addresses() {
		now.local[a] = true
	}
	before := i.current.Load()
	same := before != nil && slices.Equal(list, before.list)
	if same {
		now.since = before.since
	}
	i.current.Store(now)
	if !i.ignores {
		i.health.probes.policies.Store(now)
	}
	if same && maps.Equal(now.local, before.local) || len(list) == 0 && (before == nil || len(before.list) == 0) {
		return
	}
	var keys []lb.Key
	for s := range i.desired.Services.All(i.desired.Snapshot()) {
		keys = append(keys, s.Key)
	}
	i.health.markServices(keys)
	if i.changed != nil {
		i.changed()
	}
}

// ipsecPolicies converts the kernel's policies to those of the data path. The interface of a
// policy, and port masks that are not a range, are ignored, so the policy refuses too much rather
// than too little. For the same reason, a policy that has these and allows packets is left out.
func ipsecPolicies(policies []netdev.IPsecPolicy) (list []policy.IPsecPolicy) {
	for n := range policies {
		p := &policies[n]
		if p.Narrow && !p.Refuses() {
			continue
		}
		one := policy.IPsecPolicy{Forward: p.Forward, Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Text: p.String()}
		first, last, ok := p.SourcePort.Range()
		if ok && p.SourcePort.Mask != 0 {
			one.SourcePorts = policy.RulePorts{Min: first, Max: last}
		}
		first, last, ok = p.DestinationPort.Range()
		if ok && p.DestinationPort.Mask != 0 {
			one.DestinationPorts = policy.RulePorts{Min: first, Max: last}
		}
		switch {
		case p.Protects && p.Forward:
			one.Action = policy.IPsecDecrypt
		case p.Refuses():
			one.Action = policy.IPsecRefuse
		}
		if p := lb.Protocol(one.Protocol); one.Action != policy.IPsecAllow && p != 0 && !(p.HasPorts() && p.Supported()) {
			// types and codes, which the data path does not match
			one.SourcePorts, one.DestinationPorts = policy.RulePorts{}, policy.RulePorts{}
		}
		list = append(list, one)
	}
	return list
}

// policies are the IPsec policies that were read last. They are never modified.
type policies struct {
	list  []policy.IPsecPolicy
	since time.Time
	local map[netip.Addr]bool // addresses of this machine: packets to these do not leave it
}

// currentPolicies holds the current policies. It is safe for concurrent use.
type currentPolicies struct {
	atomic.Pointer[policies]
	source func(endpoint netip.Addr) netip.Addr // of this machine, as the endpoint sees it
}

// any reports whether there are policies.
func (f *currentPolicies) any() bool {
	p := f.Load()
	return p != nil && len(p.list) > 0
}

// refusals yields the policies that refuse packets of a service to or from an endpoint.
func (f *currentPolicies) refusals(s *lb.Service, e lb.Endpoint, yield func(policy.IPsecRefusal)) {
	p := f.Load()
	var source netip.Addr
	if f.source != nil {
		source = f.source(e.Addr)
	}
	for _, flow := range policy.IPsecFlows(s, e, source) {
		if (p.local[e.Addr] || e.Addr.IsLoopback()) && flow.Destination.Contains(e.Addr) && !flow.Arrives {
			continue
		}
		for _, r := range policy.IPsecRefusals(p.list, &flow) {
			yield(r)
		}
	}
}

// refusal returns the policy that refuses packets of a service to or from an endpoint, and since
// when. It prefers a policy that refuses all packets.
func (f *currentPolicies) refusal(s *lb.Service, e lb.Endpoint) (r policy.IPsecRefusal, since time.Time, ok bool) {
	if !f.any() {
		return r, since, false
	}
	f.refusals(s, e, func(found policy.IPsecRefusal) {
		if !ok || found.RefusesAll && !r.RefusesAll {
			r, ok = found, true
		}
	})
	return r, f.Load().since, ok
}

// IPsecRefused is an endpoint of a service whose packets an IPsec policy refuses. If the policy
// refuses only packets of some clients, it is the first endpoint that the policy affects.
type IPsecRefused struct {
	Service  lb.Key
	Endpoint netip.AddrPort
	policy.IPsecRefusal
}

// About returns the endpoint's address, or the clients whose packets are refused.
func (r *IPsecRefused) About() string {
	if !r.RefusesAll && r.Clients.IsValid() {
		return r.Clients.String()
	}
	return r.Endpoint.Addr().String()
}

// Packets names the packets that are refused.
func (r *IPsecRefused) Packets() string {
	switch {
	case r.RefusesAll:
		return fmt.Sprintf("packets of service %s to endpoint %s, or its answers,", r.Service, r.Endpoint)
	case r.Clients.IsValid() && r.Answers:
		return fmt.Sprintf("answers to clients in %s", r.Clients)
	case r.Clients.IsValid():
		return fmt.Sprintf("packets from clients in %s, such as those of service %s to endpoint %s,",
			r.Clients, r.Service, r.Endpoint)
	}
	return fmt.Sprintf("some packets of service %s to endpoint %s, or of its answers,", r.Service, r.Endpoint)
}

// Refused lists the endpoints whose packets are all refused, in the order of services, and each
// policy that refuses packets of some clients; most limits the length of the list.
func (i *IPsec) Refused(most int) (list []IPsecRefused) {
	if !i.current.any() {
		return nil
	}
	reported := map[policy.IPsecRefusal]bool{} // refusals of some clients: once for all services
	for s := range i.desired.Services.EachShared(i.desired.Snapshot()) {
		for _, e := range s.Endpoints {
			for _, r := range i.current.unreported(s, e, reported) {
				if list = append(list, IPsecRefused{s.Key, e.AddrPort(), r}); len(list) == most {
					return list
				}
			}
		}
	}
	return list
}

// unreported lists the policies that refuse packets of a service to or from an endpoint: one that
// refuses all packets, or else each policy that refuses some packets and was not reported yet.
func (f *currentPolicies) unreported(s *lb.Service, e lb.Endpoint, reported map[policy.IPsecRefusal]bool) (list []policy.IPsecRefusal) {
	r, _, ok := f.refusal(s, e)
	switch {
	case !ok:
		return nil
	case r.RefusesAll:
		return []policy.IPsecRefusal{r}
	}
	f.refusals(s, e, func(r policy.IPsecRefusal) {
		if !reported[r] {
			reported[r] = true
			list = append(list, r)
		}
	})
	return list
}

// IPsecRefusal returns the IPsec policy that refuses packets to or from an endpoint of a service.
func (h *Health) IPsecRefusal(s *lb.Service, e lb.Endpoint) (r policy.IPsecRefusal, ok bool) {
	r, _, ok = h.probes.policies.refusal(s, e)
	return r, ok
}

// ipsecEvidence returns the evidence for an endpoint whose packets a policy refuses.
func ipsecEvidence(r policy.IPsecRefusal) string {
	return "an IPsec policy covers packets to it or its answers: " + r.Policy
}
