package policy

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
)

// IPsecPolicies are the policies of the kernel's IPsec, in the form of firewall rules. Methods are
// safe for concurrent use.
type IPsecPolicies struct {
	collection *loader.Collection

	mu     sync.Mutex
	table  bpf.RuleTable    // as written
	known  bool             // table is what this process has written
	counts []*ebpf.Variable // the programs' variables for the number of policies
}

// OpenIPsec adopts the policies of an earlier process: they hold until SetIPsec.
func OpenIPsec(c *loader.Collection) (*IPsecPolicies, error) {
	p := &IPsecPolicies{collection: c, counts: []*ebpf.Variable{c.Variables.IpsecCount}}
	set, err := p.read()
	if err != nil || set == nil {
		return p, err
	}
	return p, p.writeCount(set.Count)
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

// Follow writes the number of policies to another object's variable too, now and at each change.
func (p *IPsecPolicies) Follow(count *ebpf.Variable) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n uint32
	err := p.counts[0].Get(&n)
	if err == nil {
		err = count.Set(n)
	}
	if err != nil {
		return fmt.Errorf("count policies of IPsec: %w", err)
	}
	p.counts = append(p.counts, count)
	return nil
}

// Audit compares the set with the one that this process has written; with mend, a difference is
// corrected.
func (p *IPsecPolicies) Audit(mend bool) []lb.Compared {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := lb.Compared{Table: "ipsec_policies", Rows: len(p.table.Rules)}
	if !p.known {
		return []lb.Compared{out}
	}
	have, err := p.read()
	if err != nil {
		out.Err = err
		return []lb.Compared{out}
	}
	empty := len(p.table.Rules) == 0
	if (have == nil) != empty || have != nil && *have != *p.table.Set() {
		out.Differences = []lb.Difference{{Table: out.Table, Row: "the set of policies", What: "is another one"}}
		if mend {
			out.Err = p.write(&p.table)
		}
	}
	var counts []rows.Variable
	for _, v := range p.counts {
		counts = append(counts, rows.Variable{Name: "ipsec_count", In: v, Want: uint32(len(p.table.Rules))})
	}
	return []lb.Compared{out, rows.CheckVariables(mend, counts...)}
}

// read returns the set in force; nil: there is none.
func (p *IPsecPolicies) read() (*bpf.TcRuleSet, error) {
	var id ebpf.MapID
	err := p.collection.Maps.IpsecPolicies.Lookup(uint32(0), &id)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read policies of IPsec: %w", err)
	}
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, fmt.Errorf("read policies of IPsec: %w", err)
	}
	defer m.Close()
	set := &bpf.TcRuleSet{}
	if err := m.Lookup(uint32(0), set); err != nil {
		return nil, fmt.Errorf("read policies of IPsec: %w", err)
	}
	return set, nil
}

// write replaces the set. Packets that are looking at the old one finish with it.
func (p *IPsecPolicies) write(t *bpf.RuleTable) error {
	if len(t.Rules) == 0 {
		return p.remove()
	}
	m, err := p.collection.NewRuleSet()
	if err != nil {
		return fmt.Errorf("make room for policies of IPsec: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), t.Set()); err != nil {
		return fmt.Errorf("write policies of IPsec: %w", err)
	}
	if err := p.collection.Maps.IpsecPolicies.Put(uint32(0), uint32(m.FD())); err != nil {
		return fmt.Errorf("replace policies of IPsec: %w", err)
	}
	return p.writeCount(uint32(len(t.Rules)))
}

func (p *IPsecPolicies) remove() error {
	if err := p.writeCount(0); err != nil {
		return err
	}
	if err := rows.Delete(p.collection.Maps.IpsecPolicies, uint32(0)); err != nil {
		return fmt.Errorf("remove policies of IPsec: %w", err)
	}
	return nil
}

func (p *IPsecPolicies) writeCount(n uint32) error {
	for _, v := range p.counts {
		if err := v.Set(n); err != nil {
			return fmt.Errorf("count policies of IPsec: %w", err)
		}
	}
	return nil
}
