package tables

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// putSNAT writes a service's own source addresses, before the row with their number. Former ones
// stay until trimSNAT.
func (t *Tables) putSNAT(s *service, list []bpf.TcIpAddr, undo *undoLog) error {
	was := slices.Clone(s.extras().snat)
	if slices.Equal(was, list) {
		return nil
	}
	extra := s.makeExtras()
	undo.add(func() error {
		return errors.Join(t.putSNAT(s, was, &undoLog{}), t.trimSNAT(s, len(was)))
	})
	for i, a := range list {
		if i < len(extra.snat) && extra.snat[i] == a {
			continue
		}
		if err := t.maps.SnatSources.Put(bpf.TcSnatSourceKey{Service: s.id, Place: uint32(i)}, a); err != nil {
			return fmt.Errorf("write source address: %w", asErrFull(err))
		}
		if i == len(extra.snat) {
			extra.snat = append(extra.snat, a)
		}
		extra.snat[i] = a
	}
	return nil
}

// trimSNAT removes former source addresses of the service.
func (t *Tables) trimSNAT(s *service, keep int) error {
	for last := len(s.extras().snat) - 1; last >= keep; last-- {
		if err := t.deleteSNAT(bpf.TcSnatSourceKey{Service: s.id, Place: uint32(last)}); err != nil {
			return err
		}
		s.extra.snat = s.extra.snat[:last]
	}
	return nil
}

func (t *Tables) deleteSNAT(key bpf.TcSnatSourceKey) error {
	if err := rows.Delete(t.maps.SnatSources, key); err != nil {
		return fmt.Errorf("delete source address: %w", err)
	}
	return nil
}

// adoptSNAT reads the addresses, and removes addresses of deleted services.
func (t *Tables) adoptSNAT(byID map[uint32]*service) error {
	var orphans []bpf.TcSnatSourceKey
	err := rows.Each(t.maps.SnatSources, func(k bpf.TcSnatSourceKey, a bpf.TcIpAddr) {
		s := byID[k.Service]
		if s == nil || s.deleted {
			orphans = append(orphans, k)
			return
		}
		extra := s.makeExtras()
		for len(extra.snat) <= int(k.Place) {
			extra.snat = append(extra.snat, bpf.TcIpAddr{}) // its row follows, unless an earlier process was killed before it wrote the row
		}
		extra.snat[k.Place] = a
	})
	if err != nil {
		return fmt.Errorf("read source addresses: %w", err)
	}
	var errs []error
	for _, k := range orphans {
		errs = append(errs, t.deleteSNAT(k))
	}
	return errors.Join(errs...)
}

// SNATUsages returns the table of source ports, or nil before the first service.
func (t *Tables) SNATUsages() *ebpf.Map {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.arrays.SNATUsages.Table()
}

// PortsInUse lists pairs of a source address of this machine and an endpoint that have at least
// this many source ports in use or in quarantine. It returns a limited number of pairs, sorted by
// descending ports.
func (t *Tables) PortsInUse(least, most int) ([]report.SourcePorts, error) {
	table := t.SNATUsages()
	if table == nil {
		return nil, nil
	}
	var list []report.SourcePorts
	err := rows.EachBatch(table, rows.All, func(keys []bpf.TcSnatPair, used []bpf.TcSnatUsage) {
		for i, u := range used {
			if int(u.Count) >= least && u.Count < retired {
				k := &keys[i]
				list = append(list, report.SourcePorts{Source: k.Source.Netip(), Endpoint: bpf.AddrPort(k.Endpoint, k.Port), Protocol: lb.Protocol(k.Protocol), Used: int(u.Count)})
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read source ports: %w", err)
	}
	slices.SortFunc(list, func(a, b report.SourcePorts) int {
		return cmp.Or(b.Used-a.Used, a.Endpoint.Compare(b.Endpoint), a.Source.Compare(b.Source))
	})
	list = list[:min(len(list), most)]
	for i := range list {
		if list[i].Max, err = t.portsMax(list[i].Source); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// portsMax returns the number of source ports of an address towards an endpoint: snat_limit() of
// bpf/open/snat.h.
func (t *Tables) portsMax(source netip.Addr) (int, error) {
	const most = 64000 // SNAT_LIMIT
	var local uint8
	err := t.maps.LocalAddresses.Lookup(bpf.Addr(source), &local)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return most, nil
	}
	var kept bpf.TcHostPorts
	if err = errors.Join(err, t.maps.KeptPorts.Lookup(uint32(0), &kept)); err != nil {
		return 0, fmt.Errorf("read how many source ports there are: %w", err)
	}
	if kept.Limit == 0 {
		return most, nil
	}
	return int(kept.Limit), nil
}

// retired is SNAT_RETIRED of bpf/abi.h: the row is being removed.
const retired = 0x80000000

// SourcePorts returns the number of source ports of an address of this machine that are in use or
// in quarantine towards an endpoint.
func (t *Tables) SourcePorts(source netip.Addr, endpoint netip.AddrPort, protocol uint8) (uint32, error) {
	table := t.SNATUsages()
	if table == nil {
		return 0, nil
	}
	var u bpf.TcSnatUsage
	err := table.Lookup(bpf.TcSnatPair{
		Source: bpf.Addr(source), Endpoint: bpf.Addr(endpoint.Addr()), Port: bpf.Port(endpoint.Port()), Protocol: protocol,
	}, &u)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read source ports: %w", err)
	}
	return u.Count, nil
}

const (
	rangeFixedBits = 176 // RANGE_FIXED_BITS
	portBits       = 16
)

// rangeKeys returns the prefixes that make a range of ports: at most 30. All ports are one prefix,
// shorter than any other range has, so every other range precedes it.
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
		add(0, portBits) // including port 0, which is unused
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
			return fmt.Errorf("write range of ports: %w", asErrFull(err))
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
		for _, o := range s.extras().secondary {
			for _, k := range rangeKeys(o.key, o.portMax) {
				want[k] = uint32(bpf.Port(o.key.Port))
			}
		}
	}
	return want
}
