package policy

import (
	"errors"
	"fmt"
	"maps"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// attachments are the policers and mirrors of rules.
type attachments struct {
	wanted map[uint64]bpf.TcAttachments // by identity, including missing rules; nil: not set yet
	rows   map[uint32]bpf.TcAttachments // by counter, as the map has them
}

// AttachToRules sets the attachments of rules, by their identities; attachments of missing rules
// take effect when the rules appear. It reports whether a rule gained its first attachment or lost
// its last one: then connections must be checked again.
func (f *Firewall) AttachToRules(want map[uint64]bpf.TcAttachments) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attached.wanted = maps.Clone(want)
	return f.attach()
}

// attach writes the rows.
func (f *Firewall) attach() (changed bool, err error) {
	if f.attached.wanted == nil {
		return false, nil
	}
	want := map[uint32]bpf.TcAttachments{}
	for identity, row := range f.attached.wanted {
		if counter, there := f.counters[identity]; there {
			want[counter] = row
		}
	}
	changed, err = put(f.shared.Maps.AttachedRules, f.attached.rows, want, "a firewall rule")
	return changed, errors.Join(err, f.writeAttached())
}

// writeAttached sets whether packets look for attachments.
func (f *Firewall) writeAttached() error {
	if err := f.shared.Variables.RulesAttached.Set(uint32(len(f.attached.rows))); err != nil {
		return fmt.Errorf("count firewall rules that have policers and mirrors: %w", err)
	}
	return nil
}

// adoptAttached reads the attachments of an earlier process. They stay until AttachToRules.
func (f *Firewall) adoptAttached() error {
	var err error
	if f.attached.rows, err = rows.Read[uint32, bpf.TcAttachments](f.shared.Maps.AttachedRules); err != nil {
		return fmt.Errorf("read policers and mirrors of firewall rules: %w", err)
	}
	return f.writeAttached()
}
