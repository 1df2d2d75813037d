package policy

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

// ruleSet is a set of rules that is replaced atomically: the only row of an outer map, and the
// programs' variables for the number of rules.
type ruleSet struct {
	collection *loader.Collection
	outer      *ebpf.Map
	counts     []*ebpf.Variable
}

// read reads the set in force, or returns nil.
func (s *ruleSet) read() (*bpf.TcRuleSet, error) {
	var id ebpf.MapID
	err := s.outer.Lookup(uint32(0), &id)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	set := &bpf.TcRuleSet{}
	if err := m.Lookup(uint32(0), set); err != nil {
		return nil, err
	}
	set.Count = min(set.Count, uint32(len(set.Rules)))
	return set, nil
}

// replace puts a set in force; packets that have begun with the old one finish with it. count
// writes the variables about the set: packets must not look for removed rules.
func (s *ruleSet) replace(set *bpf.TcRuleSet, count func() error) error {
	if set.Count == 0 {
		if err := count(); err != nil {
			return err
		}
		return rows.Delete(s.outer, uint32(0))
	}
	m, err := s.collection.NewRuleSet()
	if err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), set); err != nil {
		return err
	}
	if err := s.outer.Put(uint32(0), uint32(m.FD())); err != nil {
		return fmt.Errorf("replace the set: %w", err)
	}
	return count()
}

// writeCount writes the number of rules.
func (s *ruleSet) writeCount(n uint32) error {
	for _, v := range s.counts {
		if err := v.Set(n); err != nil {
			return fmt.Errorf("count rules: %w", err)
		}
	}
	return nil
}

// follow makes another object's variable follow the number of rules from now on.
func (s *ruleSet) follow(count *ebpf.Variable, n uint32) error {
	if err := count.Set(n); err != nil {
		return fmt.Errorf("count rules: %w", err)
	}
	s.counts = append(s.counts, count)
	return nil
}
