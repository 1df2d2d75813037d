package conntrack

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

// Replica replaces a table: programs see the same size and load, but it has only a few given
// entries. All of its groups share a few buckets.
type Replica struct {
	outer, state, counts *ebpf.Map
	group                *ebpf.Map
	groups               int // number of existing groups of outer
}

// NewReplica returns a Replica of three empty maps; inner is the spec of its groups.
func NewReplica(outer, state, counts *ebpf.Map, inner *ebpf.MapSpec) (*Replica, error) {
	group, err := ebpf.NewMap(inner)
	if err != nil {
		return nil, fmt.Errorf("make a replica of the connection table: %w", err)
	}
	return &Replica{outer: outer, state: state, counts: counts, group: group}, nil
}

// Close releases the maps.
func (d *Replica) Close() error { return d.group.Close() }

// Set copies the table's current size and load, and replaces the entries.
func (d *Replica) Set(of *Table, entries []Entry) error {
	s, err := of.read()
	if err != nil {
		return err
	}
	if s.Entries, err = countExactly(of); err != nil {
		return err
	}
	if err := d.extend(s.inUse()); err != nil {
		return fmt.Errorf("make a replica of the connection table: %w", err)
	}
	buckets := make([]element, perGroup)
	for i := range entries {
		if !put(buckets, s.homes(&entries[i].Key)[0], &entries[i], false) {
			return fmt.Errorf("make a replica of the connection table: no room for %d entries", len(entries))
		}
	}
	var errs []error
	for i := range buckets {
		errs = append(errs, d.group.Put(uint32(i), &buckets[i]))
	}
	own := make([]int64, ebpf.MustPossibleCPU())
	errs = append(errs, d.state.Put(uint32(0), (*bpf.TcTableState)(s)), d.counts.Put(uint32(0), own))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the replica of the connection table: %w", err)
	}
	return nil
}

// countExactly returns the number of a table's entries, including the CPUs' own counts.
func countExactly(t *Table) (int64, error) {
	n, err := t.Len()
	return int64(n), err
}

// extend gives the outer map as many groups as the table has.
func (d *Replica) extend(groups int) error {
	if groups <= d.groups {
		return nil
	}
	keys, fds := make([]uint32, 0, groups-d.groups), make([]uint32, 0, groups-d.groups)
	for i := d.groups; i < groups; i++ {
		keys, fds = append(keys, uint32(i)), append(fds, uint32(d.group.FD()))
	}
	if _, err := d.outer.BatchUpdate(keys, fds, nil); err != nil {
		return err
	}
	d.groups = groups
	return nil
}

// Entries returns the current entries.
func (d *Replica) Entries() (entries []Entry, err error) {
	for i := range perGroup {
		var e element
		if err := d.group.Lookup(i, &e); err != nil {
			return nil, fmt.Errorf("read the replica of the connection table: %w", err)
		}
		eachRow(bucketIn(&e), func(k bpf.TcConnectionKey, c bpf.TcConnection) bool {
			entries = append(entries, Entry{k, c})
			return true
		})
	}
	return entries, nil
}
