package policy

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// IPsecPolicies are the policies of the kernel's IPsec, as firewall rules. Methods are
// safe for concurrent use.
type IPsecPolicies struct {
	mu      sync.Mutex
	inForce ruleSet
	table   bpf.RuleTable // as written
	known   bool          // table was written by this process
}

// OpenIPsec adopts the policies of an earlier process: they hold until SetIPsec.
func OpenIPsec(c *loader.Collection) (*IPsecPolicies, error) {
	p := &IPsecPolicies{inForce: ruleSet{c, c.Maps.IpsecPolicies, []*ebpf.Variable{c.Variables.IpsecCount}}}
	set, err := p.inForce.read()
	if err != nil {
		return p, fmt.Errorf("read IPsec policies: %w", err)
	}
	if set == nil {
		return p, nil
	}
	return p, p.inForce.writeCount(set.Count)
}

// SetIPsec replaces the policies. then is called after a change, and again until it succeeds.
func (p *IPsecPolicies) SetIPsec(t bpf.RuleTable, then func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known && t.Equal(&p.table) {
		return nil
	}
	p.known = false
	if err := p.write(&t); err != nil {
		return err
	}
	p.table = t
	if err := then(); err != nil {
		return err
	}
	p.known = true
	return nil
}

// Follow also writes the number of policies to another object's variable, now and at each change.
func (p *IPsecPolicies) Follow(count *ebpf.Variable) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n uint32
	if err := p.inForce.counts[0].Get(&n); err != nil {
		return fmt.Errorf("count IPsec policies: %w", err)
	}
	return p.inForce.follow(count, n)
}

// Audit compares the set with the one written by this process; with repair, it corrects a
// difference.
func (p *IPsecPolicies) Audit(repair bool) []report.Compared {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := report.Compared{Table: "ipsec_policies", Rows: len(p.table.Rules)}
	if !p.known {
		return []report.Compared{out}
	}
	have, err := p.inForce.read()
	if err != nil {
		out.Err = fmt.Errorf("read IPsec policies: %w", err)
		return []report.Compared{out}
	}
	empty := len(p.table.Rules) == 0
	if (have == nil) != empty || have != nil && *have != *p.table.Set() {
		out.Differences = []report.Difference{{Table: out.Table, Row: "the set of policies", What: "is another one"}}
		if repair {
			out.Err = p.write(&p.table)
		}
	}
	var counts []rows.Variable
	for _, v := range p.inForce.counts {
		counts = append(counts, rows.Variable{Name: "ipsec_count", In: v, Want: uint32(len(p.table.Rules))})
	}
	return []report.Compared{out, rows.CheckVariables(repair, counts...)}
}

func (p *IPsecPolicies) write(t *bpf.RuleTable) error {
	set := t.Set()
	if err := p.inForce.replace(set, func() error { return p.inForce.writeCount(set.Count) }); err != nil {
		return fmt.Errorf("write IPsec policies: %w", err)
	}
	return nil
}
