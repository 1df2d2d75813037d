package tables

import (
	"fmt"
	"math/bits"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

const (
	rangeFixedBits = 176 // RANGE_FIXED_BITS
	portBits       = 16
)

// rangeKeys returns the prefixes that make a range of ports: at most 30. All ports are one prefix,
// shorter than any other range has, so that every other range precedes it.
func rangeKeys(key bpf.TcServiceKey, last uint16) []bpf.TcRangeKey {
	if last == 0 {
		return nil
	}
	var keys []bpf.TcRangeKey
	add := func(port uint32, size int) {
		keys = append(keys, bpf.TcRangeKey{
			PrefixLength: uint32(rangeFixedBits + portBits - size), Vip: key.Vip, Mark: key.Mark,
			Protocol: key.Protocol, Port: bpf.Port(uint16(port)),
		})
	}
	first, end := uint32(bpf.Port(key.Port)), uint32(last)+1
	if first == 1 && last == 65535 {
		add(0, portBits) // including port 0, which nobody uses
		return keys
	}
	for first < end {
		// the largest block that begins here and does not exceed the end
		size := min(bits.TrailingZeros32(first), bits.Len32(end-first)-1)
		add(first, size)
		first += 1 << size
	}
	return keys
}

// putRange makes the service's range end at last, 0 for none. Unchanged prefixes are not written.
func (t *Tables) putRange(s *service, last uint16, undo *undoLog) error {
	was := s.portMax
	if was == last {
		return nil
	}
	undo.add(func() error {
		s.portMax = last
		return t.putRange(s, was, &undoLog{})
	})
	first := uint32(bpf.Port(s.key.Port))
	stay := map[bpf.TcRangeKey]bool{}
	for _, k := range rangeKeys(s.key, last) {
		stay[k] = true
		if err := t.maps.ServiceRanges.Put(k, first); err != nil {
			return fmt.Errorf("write range of ports: %w", full(err))
		}
	}
	s.portMax = last
	for _, k := range rangeKeys(s.key, was) {
		if stay[k] {
			continue
		}
		if err := rows.Delete(t.maps.ServiceRanges, k); err != nil {
			return fmt.Errorf("delete range of ports: %w", err)
		}
	}
	return nil
}

// adoptRanges completes unfinished changes of an earlier process: it removes prefixes of services
// that are gone or have another end, and adds missing ones.
func (t *Tables) adoptRanges() error {
	have, err := rows.Read[bpf.TcRangeKey, uint32](t.maps.ServiceRanges)
	if err != nil {
		return fmt.Errorf("read ranges of ports: %w", err)
	}
	if _, err := rows.Sync(t.maps.ServiceRanges, have, t.wantedRanges()); err != nil {
		return fmt.Errorf("write ranges of ports: %w", err)
	}
	return nil
}

// wantedRanges returns the rows of all services with ranges.
func (t *Tables) wantedRanges() map[bpf.TcRangeKey]uint32 {
	want := map[bpf.TcRangeKey]uint32{}
	for _, s := range t.services {
		for _, k := range rangeKeys(s.key, s.portMax) {
			want[k] = uint32(bpf.Port(s.key.Port))
		}
		for _, o := range s.extras().further {
			for _, k := range rangeKeys(o.key, o.portMax) {
				want[k] = uint32(bpf.Port(o.key.Port))
			}
		}
	}
	return want
}
