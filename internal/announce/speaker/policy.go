package speaker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"
	"google.golang.org/protobuf/proto"

	"loxilb/internal/lb/bgp"
)

// policy holds the sets, policies and applications that users have configured.
type policy struct {
	sets     []bgp.DefinedSet
	policies []bgp.Policy
	apps     []bgp.Application
}

// mayReject reports whether some routes may not be announced.
func (p *policy) mayReject() bool { return len(p.apps) > 0 }

// equal reports whether two policies are equal.
func (p *policy) equal(o *policy) bool {
	return reflect.DeepEqual(p, o)
}

// gobgp has policies for single neighbors only if they are clients of a route server. So all that
// applies is compiled to the statements of two policies, which decide about all routes. They also
// change atomically.
const (
	importPolicy = "loxilb-import"
	exportPolicy = "loxilb-export"
)

// Names of the speaker's own sets and statements. Users' names have no colon.
const (
	ownPrefix   = "loxilb:"
	prependMark = ownPrefix + "prepend-"
)

// rules are the compiled policies of a speaker, in gobgp's form.
type rules struct {
	request      *api.SetPoliciesRequest
	importReject bool // routes that no statement decides about
}

// check compiles policies for a speaker without neighbors, and lets gobgp parse them.
func (p *policy) check() error {
	r, err := p.compile(ruleContext{})
	if err != nil {
		return err
	}
	scratch := server.NewBgpServer()
	go scratch.Serve()
	defer scratch.Stop()
	return scratch.SetPolicies(context.Background(), r.request)
}

// ruleContext has the data on which rules depend, besides users' policies.
type ruleContext struct {
	asn      uint32
	install  bool                  // routes of neighbors are accepted
	prepends []uint8               // values of routes, ascending
	addrs    map[string]netip.Addr // of neighbors without an address, by key
}

// compile returns the rules:
//
//   - import: own routes are accepted; then policies of users decide; then all others are rejected,
//     unless the kernel is to have them.
//   - export: routes of neighbors are rejected, because this node is no transit router; then the
//     marks of prepending take effect; then policies of users decide; then all others are accepted.
func (p *policy) compile(c ruleContext) (*rules, error) {
	b := ruleBuilder{ruleContext: c, policy: p, sets: map[string]bool{}}
	for _, s := range p.sets {
		set, err := apiSet(s)
		if err != nil {
			return nil, err
		}
		b.request.DefinedSets = append(b.request.DefinedSets, set)
	}
	in := []*api.Statement{{
		Name:       ownPrefix + "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}
	out := append(noTransit(), b.prepending()...)
	users, err := b.users(true)
	if err != nil {
		return nil, err
	}
	in = append(in, users...)
	if users, err = b.users(false); err != nil {
		return nil, err
	}
	out = append(out, users...)
	b.request.Policies = []*api.Policy{
		{Name: importPolicy, Statements: in},
		{Name: exportPolicy, Statements: out},
	}
	return &rules{request: &b.request, importReject: !c.install}, nil
}

// ruleBuilder collects the rules.
type ruleBuilder struct {
	ruleContext
	policy  *policy
	request api.SetPoliciesRequest
	sets    map[string]bool // names of the speaker's own sets
	count   int             // of statements, for their names
}

func (b *ruleBuilder) addSet(s *api.DefinedSet) {
	if !b.sets[s.Name] {
		b.sets[s.Name] = true
		b.request.DefinedSets = append(b.request.DefinedSets, s)
	}
}

// noTransit rejects routes that neighbors have announced.
func noTransit() []*api.Statement {
	reject := func(name string, t api.Conditions_RouteType) *api.Statement {
		return &api.Statement{
			Name:       ownPrefix + name,
			Conditions: &api.Conditions{RouteType: t},
			Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT},
		}
	}
	return []*api.Statement{
		reject("internal", api.Conditions_ROUTE_TYPE_INTERNAL), reject("external", api.Conditions_ROUTE_TYPE_EXTERNAL),
	}
}

// prependCommunity marks routes whose AS path gets this AS n more times. The path itself cannot
// contain them: neighbors of the same AS would detect a loop.
func prependCommunity(asn uint32, n uint8) string {
	return fmt.Sprintf("%d:0:%d", asn, n)
}

// prepending returns the statements that replace marks by AS numbers. To neighbors of the same AS
// the path is empty.
func (b *ruleBuilder) prepending() []*api.Statement {
	var statements []*api.Statement
	for _, n := range b.prepends {
		name := prependMark + strconv.Itoa(int(n))
		mark := prependCommunity(b.asn, n)
		b.addSet(&api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, Name: name, List: []string{"^" + mark + "$"},
		})
		match := &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}
		statements = append(statements, &api.Statement{
			Name: name,
			Conditions: &api.Conditions{
				LargeCommunitySet: match,
				AsPathLength:      &api.AsPathLength{Type: api.Comparison_COMPARISON_GE, Length: 1},
			},
			Actions: &api.Actions{AsPrepend: &api.AsPrependAction{Asn: b.asn, Repeat: uint32(n)}},
		}, &api.Statement{
			Name:       name + "-mark",
			Conditions: &api.Conditions{LargeCommunitySet: match},
			Actions: &api.Actions{LargeCommunity: &api.CommunityAction{
				Type: api.CommunityAction_TYPE_REMOVE, Communities: []string{mark},
			}},
		})
	}
	return statements
}

// users returns the statements of users in one direction. Applications to a neighbor come before
// applications to all, and decide about all of its routes.
func (b *ruleBuilder) users(imports bool) ([]*api.Statement, error) {
	var single, all []*api.Statement
	for _, a := range b.policy.apps {
		if a.Import != imports {
			continue
		}
		statements, err := b.application(a)
		if err != nil {
			return nil, err
		}
		if a.Neighbor == "" || a.Neighbor == bgp.AllNeighbors {
			all = append(all, statements...)
		} else {
			single = append(single, statements...)
		}
	}
	return append(single, all...), nil
}

// application returns the statements of an application: the statements of its policies, and a last
// one for the remaining routes.
func (b *ruleBuilder) application(a bgp.Application) ([]*api.Statement, error) {
	var of *neighborSet
	if a.Neighbor != "" && a.Neighbor != bgp.AllNeighbors {
		addr, known := b.neighborAddr(a.Neighbor)
		if !known {
			return nil, nil // added with the neighbor
		}
		of = &neighborSet{name: ownPrefix + "neighbor-" + addr.String(), addr: addr}
		prefix := netip.PrefixFrom(addr, addr.BitLen()).String()
		b.addSet(&api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: of.name, List: []string{prefix}})
	}
	var statements []*api.Statement
	for _, name := range a.Policies {
		i := slices.IndexFunc(b.policy.policies, func(p bgp.Policy) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("policy %q does not exist", name)
		}
		for _, s := range b.policy.policies[i].Statements {
			if of != nil && !of.meets(s.Conditions.Neighbor, b.policy.sets) {
				continue
			}
			statement, err := b.statement(name, s, of)
			if err != nil {
				return nil, err
			}
			statements = append(statements, statement)
		}
	}
	return append(statements, b.rest(a, of)), nil
}

// rest returns the statement for routes that no policy of an application decides about.
func (b *ruleBuilder) rest(a bgp.Application, of *neighborSet) *api.Statement {
	s := &api.Statement{
		Name:       b.name("rest"),
		Conditions: &api.Conditions{NeighborSet: of.match()},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}
	if a.Reject || a.Import && !b.install {
		s.Actions.RouteAction = api.RouteAction_ROUTE_ACTION_REJECT
	}
	return s
}

// name returns a unique name for a statement: a policy may apply several times.
func (b *ruleBuilder) name(of string) string {
	b.count++
	return ownPrefix + strconv.Itoa(b.count) + "-" + of
}

// neighborAddr returns the address of a neighbor by its key.
func (b *ruleBuilder) neighborAddr(key string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(key); err == nil {
		return a.WithZone(""), true
	}
	a, known := b.addrs[key]
	return a.WithZone(""), known
}

// ruleContext returns what rules depend on now.
func (e *engine) ruleContext(w *wanted) ruleContext {
	c := ruleContext{asn: e.config.ASN, install: e.config.Install, addrs: map[string]netip.Addr{}}
	c.prepends = slices.Clone(e.rulesOf.prepends) // of earlier routes, too: gobgp may still have them
	for _, a := range w.routes {
		if a.Prepend > 0 && !slices.Contains(c.prepends, a.Prepend) {
			c.prepends = append(c.prepends, a.Prepend)
		}
	}
	slices.Sort(c.prepends)
	for k, p := range e.peers {
		if addr, err := netip.ParseAddr(p.addr); err == nil && !p.config.Addr.IsValid() {
			c.addrs[k] = addr
		}
	}
	return c
}

// applyPolicy gives gobgp the rules if they differ, and applies them to all routes.
func (e *engine) applyPolicy(w *wanted) error {
	c := e.ruleContext(w)
	if e.rules != nil && reflect.DeepEqual(c, e.rulesOf) && w.policy == e.policyOf {
		return nil
	}
	r, err := w.policy.compile(c)
	if err != nil {
		return err
	}
	e.sent.stale = true
	first := e.rules == nil
	if !first && proto.Equal(r.request, e.rules.request) && r.importReject == e.rules.importReject {
		e.rulesOf, e.policyOf = c, w.policy
		return nil
	}
	if err := e.server.SetPolicies(context.Background(), r.request); err != nil {
		return fmt.Errorf("set BGP policies: %w", err)
	}
	if first || r.importReject != e.rules.importReject {
		err = e.assignPolicies(r)
	}
	before := e.rulesOf
	before.prepends = c.prepends // routes with new values follow
	if err == nil && !first && (!reflect.DeepEqual(before, c) || w.policy != e.policyOf) {
		err = e.refresh()
	}
	if err == nil {
		e.rules, e.rulesOf, e.policyOf = r, c, w.policy
	}
	return err
}

// assignPolicies makes the two policies decide. SetPolicies keeps that.
func (e *engine) assignPolicies(r *rules) error {
	assign := func(d api.PolicyDirection, name string, otherwise api.RouteAction) error {
		return e.server.SetPolicyAssignment(context.Background(), &api.SetPolicyAssignmentRequest{
			Assignment: &api.PolicyAssignment{
				Name: "global", Direction: d, Policies: []*api.Policy{{Name: name}}, DefaultAction: otherwise,
			},
		})
	}
	otherwise := api.RouteAction_ROUTE_ACTION_ACCEPT
	if r.importReject {
		otherwise = api.RouteAction_ROUTE_ACTION_REJECT
	}
	err := errors.Join(
		assign(api.PolicyDirection_POLICY_DIRECTION_IMPORT, importPolicy, otherwise),
		assign(api.PolicyDirection_POLICY_DIRECTION_EXPORT, exportPolicy, api.RouteAction_ROUTE_ACTION_ACCEPT))
	if err != nil {
		return fmt.Errorf("apply BGP policies: %w", err)
	}
	return nil
}

// refresh applies the rules to the routes of all sessions.
func (e *engine) refresh() error {
	err := e.server.ResetPeer(context.Background(), &api.ResetPeerRequest{
		Address: "all", Soft: true, Direction: api.ResetPeerRequest_DIRECTION_BOTH,
	})
	if err != nil {
		return fmt.Errorf("apply BGP policies to routes: %w", err)
	}
	return nil
}
