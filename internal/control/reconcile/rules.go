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

// ruleEndRate is the number of connections per second that are ended after a change of rules.
// Packets are dropped immediately.
const ruleEndRate = 10000

// earlierRules is the key for the rules of an earlier process: with it, rules are compiled even if
// none are desired.
const earlierRules = "rules of an earlier process"

// Rules applies the firewall rules. They are compiled together, since all rules together determine
// which one applies to a packet.
type Rules struct {
	*objectLoop[policy.Rule]
	table    RuleTable
	links    func() []netdev.Link
	vips     LeasedOwner
	gateways Gateways // nil: none

	// Static reports whether this machine has an address that loxilb did not add; nil: none is
	// known.
	Static func(netip.Addr) bool

	mu           sync.Mutex
	named        map[string]int // compiled indices of the interfaces in rules, by name; 0: missing
	gatewaysUsed string         // gatewayLinks when gateways were last set
	inForce      []string       // keys of the rules in the data path

	endings chan ending // capacity 1: the next ending

	// used by Apply only
	last         bpf.RuleTable      // the rules in the data path
	cancelEnding context.CancelFunc // cancels the ending by these rules
	owned        []netip.Addr       // source addresses that were acquired, and not released
}

// ending describes which connections to end after a change of rules: those that the rules drop, and
// those that another node now translates.
type ending struct {
	ends  func(*report.Connection) bool
	valid context.Context // done once other rules are in force
}

// NewRules returns the loop of the rules.
func NewRules(s *desired.State, t RuleTable, links func() []netdev.Link, vips LeasedOwner, g Gateways, o Observers) *Rules {
	r := &Rules{table: t, links: links, vips: vips, gateways: g, named: map[string]int{}, endings: make(chan ending, 1), cancelEnding: func() {}}
	r.objectLoop = newObjectLoop(r, s, s.Rules, o)
	r.applied, r.together = r.keys, true
	if t.RuleCount() > 0 {
		r.inForce = []string{earlierRules}
	}
	return r
}

func (r *Rules) isStatic(a netip.Addr) bool { return r.Static != nil && r.Static(a) }

// keys returns the keys of the rules in the data path.
func (r *Rules) keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inForce
}

// Apply compiles all rules, whichever have changed. They take effect together, or not at all.
func (r *Rules) Apply(ctx context.Context, keys []string) []Outcome[string] {
	snapshot := r.desired.Snapshot()
	list := slices.Collect(r.desired.Rules.All(snapshot))
	instances := r.desired.Instances.OfThisNode(snapshot)
	var foreign []string
	var tunnels map[string]error // by key
	if r.gateways != nil {
		egress := egressOf(list, instances, r.isStatic)
		tunnels = r.setGateways(list, &egress)
		list, foreign = egress.rules, egress.servicesOfOthers()
	}
	named, index := r.interfaces()
	table, err := compile.Rules(list, index)
	if err == nil {
		r.cancelOutdated(table)
		err = r.table.SetRules(table)
	}
	if err == nil { // the rules are in force, whatever happens to addresses and tunnels
		r.record(list, named)
		r.endBy(ctx, table, foreign)
		err = r.ownSources(ctx, ownedSources(table.Sources, instances), func(a netip.Addr) []string {
			return leasedInstances(r.desired, snapshot).ifSource(a, instances)
		})
	}
	due := unique(slices.AppendSeq(slices.Clone(keys), maps.Keys(tunnels))) // a change of an interface marks any rule
	out := make([]Outcome[string], len(due))
	for i, key := range due {
		meta, _ := r.desired.Rules.Meta(snapshot, key)
		out[i] = Outcome[string]{Key: key, Version: meta.Version, Err: cmp.Or(err, tunnels[key])}
	}
	return out
}

// record records which rules the data path has, and for which interfaces they were compiled.
func (r *Rules) record(list []policy.Rule, named map[string]int) {
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = list[i].Key()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named, r.inForce = named, keys
}

// ownSources acquires the source addresses of rules, and releases former ones.
func (r *Rules) ownSources(ctx context.Context, sources []netip.Addr, leaseInstances func(netip.Addr) []string) error {
	var errs []error
	failed := func(failed map[netip.Addr]error, what string) {
		for a, err := range failed {
			errs = append(errs, fmt.Errorf("%s %s: %w", what, a, err))
		}
	}
	if len(sources) > 0 {
		failed(r.vips.add(ctx, leaseInstances, sources), "acquire")
	}
	former := slices.DeleteFunc(slices.Clone(r.owned), func(a netip.Addr) bool { return slices.Contains(sources, a) })
	r.owned = slices.Clone(sources)
	if len(former) > 0 {
		left := r.vips.remove(ctx, former)
		failed(left, "release")
		r.owned = slices.AppendSeq(r.owned, maps.Keys(left))
	}
	return errors.Join(errs...)
}

// cancelOutdated stops the ending of connections by rules that are about to be replaced.
func (r *Rules) cancelOutdated(t bpf.RuleTable) {
	if !t.Equal(&r.last) {
		r.cancelEnding()
		r.last = bpf.RuleTable{}
	}
}

// endBy makes endDropped end the connections that the new rules drop, and those whose source
// address another node now owns: their answers no longer arrive here. foreign has the services of
// connections from such addresses.
func (r *Rules) endBy(ctx context.Context, t bpf.RuleTable, foreign []string) {
	if t.Equal(&r.last) {
		return
	}
	r.last = t
	select {
	case <-r.endings: // an outdated one, not begun yet
	default:
	}
	d := compile.NewDropper(t)
	if d == nil && len(foreign) == 0 {
		return
	}
	next := ending{ends: func(c *report.Connection) bool {
		return d != nil && d.Drops(c) || slices.Contains(foreign, c.Service)
	}}
	next.valid, r.cancelEnding = context.WithCancel(ctx)
	r.endings <- next
}

// Dropper returns a function that reports whether rules would end a connection. Rules that cannot
// be compiled end none.
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

// endDropped ends connections, for clients and servers, after each change of the rules.
func (r *Rules) endDropped(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-r.endings:
			done, err := r.table.EndConnections(next.valid, 0, ruleEndRate, next.ends)
			if n := done.Reset + done.Silent; n > 0 {
				r.Log.Info("firewall rules have ended connections", "connections", n, "reset", done.Reset)
			}
			if err != nil && next.valid.Err() == nil {
				r.Log.Error("connections that firewall rules drop do not end", "error", err)
			}
		}
	}
}

// interfaces returns a function that returns the index of an interface, and records each name and
// index in named.
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

// RolesChanged compiles the rules again: their source addresses may have another owner.
func (r *Rules) RolesChanged() { r.compileAgain(r.MarkFirst) }

// compileAgain marks one rule, so all rules are compiled again.
func (r *Rules) compileAgain(mark func(...string)) {
	if keys := r.keys(); len(keys) > 0 {
		mark(keys[0])
	}
}

// LinksChanged compiles the rules again if an interface in a rule appeared, disappeared or has
// another index, or if an interface of gateways changed.
func (r *Rules) LinksChanged() {
	_, index := r.interfaces()
	links := r.gatewayLinks()
	r.mu.Lock()
	changed := links != r.gatewaysUsed
	for name, was := range r.named {
		now, _ := index(name)
		changed = changed || now != was
	}
	r.mu.Unlock()
	if changed {
		r.compileAgain(r.Mark)
	}
}

// AddressesChanged compiles the rules again if there are gateways, since isStatic may have changed
// for a gateway's address.
func (r *Rules) AddressesChanged() {
	if r.gateways != nil {
		r.compileAgain(r.Mark)
	}
}

// RoutesChanged compiles the rules again if others have removed routing rules of gateways.
func (r *Rules) RoutesChanged() {
	if r.gateways != nil && r.gateways.RulesMissing() {
		r.compileAgain(r.Mark)
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
