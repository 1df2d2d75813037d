package conntrack

import (
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
)

// Lookup finds an entry at one of its two homes. While the table grows, each home has two groups. A
// miss is valid only if the size is the same before and after it.
func (t *Table) Lookup(key bpf.TcConnectionKey) (row bpf.TcConnection, found bool, err error) {
	s, err := t.read()
	for err == nil {
		if row, found, err = t.lookUp(s, &key); found || err != nil {
			return row, found, err
		}
		before := s.Size
		if s, err = t.read(); err == nil && s.Size == before {
			return row, false, nil
		}
	}
	return row, false, err
}

func (t *Table) lookUp(s *state, key *bpf.TcConnectionKey) (row bpf.TcConnection, found bool, err error) {
	var places []uint32
	for _, h := range s.homes(key) {
		for _, group := range []uint32{groupOf(h.hash, s.groups()), groupOf(h.hash, s.goal())} {
			if !slices.Contains(places, group) {
				places = append(places, group)
			}
		}
	}
	keys, buckets := make([]uint32, perGroup), make([]element, perGroup)
	for _, group := range places {
		n, err := t.readGroup(int(group), keys, buckets)
		if err != nil {
			return row, false, err
		}
		for i := range buckets[:n] {
			eachRow(bucketIn(&buckets[i]), func(k bpf.TcConnectionKey, c bpf.TcConnection) bool {
				if k == *key {
					row, found = c, true
				}
				return !found
			})
			if found {
				return row, true, nil
			}
		}
	}
	return row, false, nil
}

// Groups returns the number of groups that may have entries.
func (t *Table) Groups() (int, error) {
	s, err := t.read()
	if err != nil {
		return 0, err
	}
	return s.inUse(), nil
}
