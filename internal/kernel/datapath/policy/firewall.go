// Package policy writes the rules that apply to packets besides their service: firewall rules
// (Firewall), the kernel's IPsec policies (IPsecPolicies), and policers and mirrors (Attached).
// Each set of rules is replaced atomically.
package policy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// Firewall writes the firewall rules and reads their counters. Methods are safe for concurrent use.
type Firewall struct {
	shared *loader.Collection
	cpus   int

	mu        sync.Mutex
	inForce   ruleSet
	table     bpf.RuleTable   // as written
	cost      policy.RuleCost // of table
	known     bool            // table was written by this process
	ids       rows.IDs
	counters  map[uint64]uint32 // by rules' identities
	sources   []uint32          // endpoints for the table's sources
	attached  attachments
	inherited uint32 // number of counters that may hold an earlier process's counts
}

// OpenFirewall adopts the rules of an earlier process: its counters continue.
func OpenFirewall(c *loader.Collection) (*Firewall, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	f := &Firewall{
		shared: c, cpus: cpus, ids: rows.NewIDs(uint32(c.RuleHits.MaxSegments())*c.RuleHits.PerSegment(), time.Now),
		counters: map[uint64]uint32{}, inForce: ruleSet{c, c.Maps.RuleSets, []*ebpf.Variable{c.Variables.RuleCount}}, inherited: uint32(c.RuleHits.Len()),
	}
	set, err := f.inForce.read()
	if err != nil {
		return nil, fmt.Errorf("read firewall rules: %w", err)
	}
	if err := f.adoptAttached(); err != nil {
		return nil, err
	}
	if set == nil {
		return f, nil
	}
	for i := range set.Rules[:set.Count] {
		r := &set.Rules[i]
		f.counters[r.Identity] = r.Counter
		f.ids.Take(r.Counter)
	}
	return f, f.writeCounts(set)
}

// SetRules replaces the rules atomically. Rules that existed before keep their counters. sources
// are the endpoints for the table's sources. After a change it calls afterChange.
func (f *Firewall) SetRules(t bpf.RuleTable, sources []uint32, afterChange func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known && t.Equal(&f.table) && slices.Equal(f.sources, sources) {
		return nil
	}
	f.known = false
	counters, fresh, err := f.assignCounters(t.Rules)
	if err == nil {
		err = f.write(&t, counters, sources)
	}
	if err != nil {
		for _, id := range fresh {
			f.ids.Put(id, true)
		}
		return err
	}
	for identity, id := range f.counters {
		if _, stays := counters[identity]; !stays {
			f.ids.Put(id, true)
		}
	}
	f.table, f.counters, f.sources, f.cost = t, counters, sources, t.Cost()
	_, failed := f.attach()
	if err := errors.Join(failed, afterChange()); err != nil {
		return err
	}
	f.known = true
	return nil
}

// CounterSegments returns the number of segments of counters.
func (f *Firewall) CounterSegments() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared.RuleHits.Count()
}

// RuleOf returns the identity of the rule with a counter, and whether there is one.
func (f *Firewall) RuleOf(counter uint32) (identity uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for identity, id := range f.counters {
		if id == counter {
			return identity, true
		}
	}
	return 0, false
}

// assignCounters returns a counter for each rule: its previous one, or a zeroed one.
func (f *Firewall) assignCounters(list []bpf.TcRule) (counters map[uint64]uint32, fresh []uint32, err error) {
	counters = make(map[uint64]uint32, len(list))
	for i := range list {
		identity := list[i].Identity
		if id, has := f.counters[identity]; has {
			counters[identity] = id
			continue
		}
		id, used, err := f.ids.Get()
		if err != nil {
			return nil, fresh, err
		}
		fresh = append(fresh, id)
		counters[identity] = id
		if err := f.clear(id, used); err != nil {
			return nil, fresh, err
		}
	}
	return counters, fresh, nil
}

// clear allocates room for a counter and sets it to zero.
func (f *Firewall) clear(id uint32, used bool) error {
	hits := f.shared.RuleHits
	if lacking := int(id/hits.PerSegment()) + 1 - len(hits.Segments()); lacking > 0 {
		if err := rows.Grow(lacking, hits); err != nil {
			return fmt.Errorf("make counters of firewall rules: %w", err)
		}
	} else if !used && id >= f.inherited {
		return nil
	}
	if err := hits.Put(id, make([]bpf.TcRuleHit, f.cpus)); err != nil {
		return fmt.Errorf("clear the counter of a firewall rule: %w", err)
	}
	return nil
}

// write replaces the rules in force.
func (f *Firewall) write(t *bpf.RuleTable, counters map[uint64]uint32, sources []uint32) error {
	set := f.set(t, counters, sources)
	if err := f.inForce.replace(set, func() error { return f.writeCounts(set) }); err != nil {
		return fmt.Errorf("write firewall rules: %w", err)
	}
	return nil
}

// set returns the content of the map.
func (f *Firewall) set(t *bpf.RuleTable, counters map[uint64]uint32, sources []uint32) *bpf.TcRuleSet {
	set := t.Set()
	for i := range t.Rules {
		r := &set.Rules[i]
		r.Counter = counters[r.Identity]
		if r.IsSNAT() {
			r.Target = sources[r.Target]
		}
	}
	return set
}

// writeCounts writes the numbers of rules and of SNAT rules, so packets skip the lookup while
// they are 0.
func (f *Firewall) writeCounts(set *bpf.TcRuleSet) error {
	n := uint32(0)
	for i := range set.Rules[:set.Count] {
		if set.Rules[i].IsSNAT() {
			n++
		}
	}
	if err := f.shared.Variables.SnatRules.Set(n); err != nil {
		return fmt.Errorf("write number of SNAT rules: %w", err)
	}
	return f.inForce.writeCount(set.Count)
}

// Count returns the number of rules.
func (f *Firewall) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.counters)
}

// RuleCost returns the highest cost of finding a packet's rule. It is zero until SetRules.
func (f *Firewall) RuleCost() policy.RuleCost {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cost
}

// Follow makes another object's variable rule_count follow the number of rules, from now on.
func (f *Firewall) Follow(count *ebpf.Variable) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inForce.follow(count, uint32(len(f.counters)))
}

// RuleHits returns the packets decided by a rule, and whether the data path has the rule.
func (f *Firewall) RuleHits(identity uint64) (sum report.Traffic, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.counters[identity]
	if !ok {
		return sum, false
	}
	hits := make([]bpf.TcRuleHit, f.cpus)
	if f.shared.RuleHits.Lookup(id, &hits) != nil {
		return sum, false
	}
	for _, h := range hits {
		sum.Packets += h.Packets
		sum.Bytes += h.Bytes
	}
	return sum, true
}
