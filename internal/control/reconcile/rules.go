package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// RuleTable is the data path's table of rules.
type RuleTable interface {
	SetRules(t bpf.RuleTable) error
	RuleCount() int // initially, the number of rules of an earlier process
	EndConnections(ctx context.Context, from, rate int, matches func(*report.Connection) bool) (report.Ended, error)
}

// ruleEndRate is the number of connections per second that end after rules begin to drop them.
// Their packets are dropped immediately.
const ruleEndRate = 10000

// leftRules stands for the rules of an earlier process: rules are compiled again even if there are
// none now.
const leftRules = "rules of before"

// Rules applies the firewall rules. They are compiled together, since the deciding rule depends on
// all of them.
type Rules struct {
	*objectLoop[policy.Rule]
	table    RuleTable
	links    func() []netdev.Link
	vips     Owned
	gateways Gateways // nil: none

	// Static reports whether this machine has an address that loxilb did not add; nil: none is
	// known.
	Static func(netip.Addr) bool

	mu    sync.Mutex
	named map[string]int // interfaces in rules, and their compiled indices; 0: missing
	below string         // the interfaces that gateways used when they were set
	has   []string       // keys of the rules in the data path

	judged chan judgement     // capacity 1: the connections to end
	last   bpf.RuleTable      // used by Apply only, like those below
	void   context.CancelFunc // cancels the judgement by these rules, when others arrive
	owned  []netip.Addr       // source addresses that were acquired from the owner, and not released
}

// judgement ends the connections that rules drop, or that another node now translates, while these
// rules are in force.
type judgement struct {
	ends  func(*report.Connection) bool
	valid context.Context
}

// NewRules returns the loop of the rules.
func NewRules(s *desired.State, t RuleTable, links func() []netdev.Link, vips Owned, g Gateways, o Observers) *Rules {
	r := &Rules{table: t, links: links, vips: vips, gateways: g, named: map[string]int{}, judged: make(chan judgement, 1), void: func() {}}
	r.objectLoop = newObjectLoop(r, s, s.Rules, o)
	r.applied, r.together = r.keys, true
	if t.RuleCount() > 0 {
		r.has = []string{leftRules}
	}
	return r
}

func (r *Rules) isStatic(a netip.Addr) bool { return r.Static != nil && r.Static(a) }

// keys returns the keys of the rules in the data path.
func (r *Rules) keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has
}

// Apply compiles all rules, whichever of them have changed. They take effect together, or not at
// all.
func (r *Rules) Apply(ctx context.Context, keys []string) []Outcome[string] {
	now := r.desired.Snapshot()
	list := slices.Collect(r.desired.Rules.All(now))
	instances := r.desired.Instances.OfThisNode(now)
	var elsewhere []string
	var tunnels map[string]error // by key
	if r.gateways != nil {
		here := egressOf(list, instances, r.isStatic)
		tunnels = r.setGateways(list, &here)
		list, elsewhere = here.rules, here.servicesOfOthers()
	}
	named, index := r.interfaces()
	table, err := compile.Rules(list, index)
	if err == nil {
		r.supersede(table)
		err = r.table.SetRules(table)
	}
	if err == nil { // the rules are in force, whatever happens to addresses and tunnels
		r.record(list, named)
		r.judge(ctx, table, elsewhere)
		err = r.own(ctx, ownedSources(table.Sources, instances), func(a netip.Addr) []string {
			return leasedBy(r.desired, now).ofSource(a, instances)
		})
	}
	due := unique(slices.AppendSeq(slices.Clone(keys), maps.Keys(tunnels))) // a change of an interface marks any rule
	out := make([]Outcome[string], len(due))
	for i, key := range due {
		meta, _ := r.desired.Rules.Meta(now, key)
		out[i] = Outcome[string]{Key: key, Version: meta.Version, Err: cmp.Or(err, tunnels[key])}
	}
	return out
}

// record records which rules the data path has, and for which interfaces they were compiled.
func (r *Rules) record(list []policy.Rule, named map[string]int) {
	has := make([]string, len(list))
	for i := range list {
		has[i] = list[i].Key()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named, r.has = named, has
}

// own acquires the source addresses of connections, and releases all others.
func (r *Rules) own(ctx context.Context, sources []netip.Addr, leasedBy func(netip.Addr) []string) error {
	var errs []error
	failed := func(failed map[netip.Addr]error, what string) {
		for a, err := range failed {
			errs = append(errs, fmt.Errorf("%s %s: %w", what, a, err))
		}
	}
	if len(sources) > 0 {
		failed(r.vips.add(ctx, leasedBy, sources), "own")
	}
	gone := slices.DeleteFunc(slices.Clone(r.owned), func(a netip.Addr) bool { return slices.Contains(sources, a) })
	r.owned = slices.Clone(sources)
	if len(gone) > 0 {
		left := r.vips.remove(ctx, gone)
		failed(left, "give up")
		r.owned = slices.AppendSeq(r.owned, maps.Keys(left))
	}
	return errors.Join(errs...)
}

// supersede stops ending connections by rules that are about to be replaced.
func (r *Rules) supersede(t bpf.RuleTable) {
	if !t.Equal(&r.last) {
		r.void()
		r.last = bpf.RuleTable{}
	}
}

// judge ends connections that the new rules drop, and connections from source addresses that other
// nodes own: answers to these no longer arrive here. elsewhere: names of these addresses.
func (r *Rules) judge(ctx context.Context, t bpf.RuleTable, elsewhere []string) {
	if t.Equal(&r.last) {
		return
	}
	r.last = t
	select {
	case <-r.judged: // newer rules are in force
	default:
	}
	d := compile.NewDropper(t)
	if d == nil && len(elsewhere) == 0 {
		return
	}
	j := judgement{ends: func(c *report.Connection) bool {
		return d != nil && d.Drops(c) || slices.Contains(elsewhere, c.Service)
	}}
	j.valid, r.void = context.WithCancel(ctx)
	r.judged <- j
}

// Dropper finds the connections that rules would end if they were in force. Rules that cannot be
// compiled end none.
func (r *Rules) Dropper(list []policy.Rule) func(*report.Connection) bool {
	_, index := r.interfaces()
	table, err := compile.Rules(list, index)
	if d := compile.NewDropper(table); err == nil && d != nil {
		return d.Drops
	}
	return func(*report.Connection) bool { return false }
}

// Run applies rules, and ends the connections that they drop, until ctx ends.
func (r *Rules) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { r.endDropped(ctx) })
	r.Loop.Run(ctx)
	running.Wait()
}

// endDropped ends connections for both ends, after each change of the rules.
func (r *Rules) endDropped(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-r.judged:
			done, err := r.table.EndConnections(j.valid, 0, ruleEndRate, j.ends)
			if n := done.Reset + done.Silent; n > 0 {
				r.Log.Info("firewall rules have ended connections", "connections", n, "reset", done.Reset)
			}
			if err != nil && j.valid.Err() == nil {
				r.Log.Error("connections that firewall rules drop do not end", "error", err)
			}
		}
	}
}

// interfaces returns a function that finds the indices of interfaces, and records the names it was
// called with.
func (r *Rules) interfaces() (named map[string]int, index func(string) (int, bool)) {
	all := map[string]int{}
	for _, l := range r.links() {
		all[l.Name] = l.Index
	}
	named = map[string]int{}
	return named, func(name string) (int, bool) {
		named[name] = all[name]
		return all[name], all[name] != 0
	}
}

// RolesChanged compiles the rules again: another node may own their source addresses, or be about
// to.
func (r *Rules) RolesChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.has) > 0 {
		r.MarkFirst(r.has[0]) // this compiles all of them
	}
}

// LinksChanged compiles the rules again if an interface in a rule appeared, vanished or was
// renumbered, or if an interface of gateways changed.
func (r *Rules) LinksChanged() {
	_, index := r.interfaces()
	links := r.gatewayLinks()
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := links != r.below
	for name, was := range r.named {
		now, _ := index(name)
		changed = changed || now != was
	}
	if changed && len(r.has) > 0 {
		r.Mark(r.has[0]) // this compiles all of them
	}
}

// AddressesChanged compiles the rules again if there are gateways: an address of one may be static
// now, or no longer.
func (r *Rules) AddressesChanged() {
	if r.gateways == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.has) > 0 {
		r.Mark(r.has[0])
	}
}

// RoutesChanged compiles the rules again if others have removed routing rules of gateways.
func (r *Rules) RoutesChanged() {
	if r.gateways == nil || !r.gateways.RulesMissing() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.has) > 0 {
		r.Mark(r.has[0])
	}
}

// gatewayLinks describes the interfaces that gateways use.
func (r *Rules) gatewayLinks() string {
	if r.gateways == nil {
		return ""
	}
	var list []string
	for _, l := range r.links() {
		if r.gateways.Uses(l.Name) {
			list = append(list, fmt.Sprint(l.Name, l.Index, l.Generation, l.Up, l.MTU, l.MAC))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}
