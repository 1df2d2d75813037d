package tables

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/rows"
	"loxilb/internal/lb"
)

const (
	sourceFixedBits = 32 // SOURCE_FIXED_BITS
	mappedBits      = 96 // of the 128 that an IPv4 address has in the maps

	// sourcesAtOnce is how many prefixes one system call writes.
	sourcesAtOnce = 4096
)

// A list changes in this order: what is new is added, the service's row says whether there is a list, what is gone is
// removed. So a source that is in the old list and in the new one is never refused in between, and one that is in
// neither is never let in.

// addSources adds what the service's list does not have yet.
func (t *Tables) addSources(s *service, list []netip.Prefix, undo *undoLog) error {
	was := s.extras().sources
	fresh := without(list, was)
	if len(fresh) == 0 {
		return nil
	}
	undo.add(func() error { return t.keepSources(s, was) })
	s.makeExtras().sources = union(was, fresh)
	for len(fresh) > 0 {
		n := min(len(fresh), sourcesAtOnce)
		ones := make([]uint8, n)
		for i := range ones {
			ones[i] = 1
		}
		if _, err := t.maps.AllowedSources.BatchUpdate(sourceKeys(s.id, fresh[:n]), ones, nil); err != nil {
			return fmt.Errorf("write sources: %w", full(err))
		}
		fresh = fresh[n:]
	}
	return nil
}

// keepSources removes all but list, which the service's list has.
func (t *Tables) keepSources(s *service, list []netip.Prefix) error {
	if s.extra == nil {
		return nil
	}
	gone := without(s.extra.sources, list)
	s.extra.sources = list
	return t.deleteSources(s.id, gone)
}

func (t *Tables) deleteSources(id uint32, list []netip.Prefix) error {
	for _, k := range sourceKeys(id, list) {
		if err := t.maps.AllowedSources.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete sources: %w", err)
		}
	}
	return nil
}

func sourceKeys(id uint32, list []netip.Prefix) []bpf.TcSourceKey {
	keys := make([]bpf.TcSourceKey, len(list))
	for i, p := range list {
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += mappedBits
		}
		keys[i] = bpf.TcSourceKey{PrefixLength: uint32(sourceFixedBits + bits), Service: id, Addr: bpf.Addr(p.Addr())}
	}
	return keys
}

// prefixOf is the inverse of sourceKeys.
func prefixOf(k bpf.TcSourceKey) netip.Prefix {
	a, bits := k.Addr.Netip(), int(k.PrefixLength)-sourceFixedBits
	if a.Is4() && bits >= mappedBits {
		bits -= mappedBits
	}
	return netip.PrefixFrom(a, bits)
}

// adoptSources reads the lists back, and removes those of services that are gone.
func (t *Tables) adoptSources() error {
	byID := make(map[uint32]*service, len(t.services))
	for _, s := range t.services {
		byID[s.id] = s
	}
	stale := map[uint32][]netip.Prefix{}
	err := rows.Each(t.maps.AllowedSources, func(k bpf.TcSourceKey, _ uint8) {
		if s, ok := byID[k.Service]; ok {
			extra := s.makeExtras()
			extra.sources = append(extra.sources, prefixOf(k))
		} else {
			stale[k.Service] = append(stale[k.Service], prefixOf(k))
		}
	})
	if err != nil {
		return fmt.Errorf("read sources: %w", err)
	}
	for _, s := range byID {
		if s.extra != nil {
			s.extra.sources = lb.NormalSources(s.extra.sources)
		}
	}
	for id, list := range stale {
		if err := t.deleteSources(id, list); err != nil {
			return err
		}
	}
	return nil
}

// without are the prefixes of a that b does not have; both are sorted, and so is it.
func without(a, b []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range a {
		for len(b) > 0 && lb.ComparePrefix(b[0], p) < 0 {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != p {
			out = append(out, p)
		}
	}
	return out
}

// union of two lists, sorted.
func union(a, b []netip.Prefix) []netip.Prefix {
	if len(b) == 0 {
		return a
	}
	out := make([]netip.Prefix, 0, len(a)+len(b))
	return lb.NormalSources(append(append(out, a...), b...))
}
