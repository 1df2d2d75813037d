package tables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	sourceFixedBits = 32 // SOURCE_FIXED_BITS
	mappedBits      = 96 // of the 128 that an IPv4 address has in the maps

	// sourcesAtOnce is the number of prefixes per system call.
	sourcesAtOnce = 4096
)

// A list changes in this order: add new prefixes, update the service's row, which says whether
// there is a list, remove old ones. So a source in both the old and the new list is never refused
// in between, and a source in neither is never admitted. A list of denied sources changes in the
// same order.
//
// If both change, the denied list takes effect before sources are added to the allowed list, and
// stays until old ones are removed there. Otherwise a source that one list refuses before, and the
// other afterwards, would be admitted in between.

// sourceList is one of a service's two lists.
type sourceList uint32

const (
	allowedSources sourceList = 0
	deniedSources  sourceList = 1 << 31 // SOURCES_DENIED
)

// flag returns the service's flag that enables the list.
func (l sourceList) flag() uint16 {
	if l == deniedSources {
		return serviceDenies
	}
	return serviceSources
}

// listOf returns the process's copy of the list.
func (l sourceList) listOf(e *extras) *[]netip.Prefix {
	if l == deniedSources {
		return &e.denied
	}
	return &e.sources
}

// addSources adds the prefixes that the service's list does not have yet.
func (t *Tables) addSources(s *service, l sourceList, list []netip.Prefix, undo *undoLog) error {
	extra := s.extras()
	was := *l.listOf(&extra)
	fresh := difference(list, was)
	if len(fresh) == 0 {
		return nil
	}
	undo.add(func() error { return t.keepSources(s, l, was) })
	*l.listOf(s.makeExtras()) = union(was, fresh)
	for len(fresh) > 0 {
		n := min(len(fresh), sourcesAtOnce)
		ones := make([]uint8, n)
		for i := range ones {
			ones[i] = 1
		}
		if _, err := t.maps.AllowedSources.BatchUpdate(sourceKeys(s.id, l, fresh[:n]), ones, nil); err != nil {
			return fmt.Errorf("write sources: %w", asErrFull(err))
		}
		fresh = fresh[n:]
	}
	return nil
}

// putSources adds the new prefixes of both lists.
func (t *Tables) putSources(s *service, want *bpf.ServiceTable, undo *undoLog) error {
	if err := t.addSources(s, deniedSources, want.Denied, undo); err != nil {
		return err
	}
	if err := t.enableDenied(s, undo); err != nil {
		return err
	}
	return t.addSources(s, allowedSources, want.Sources, undo)
}

// enableDenied enables the list of denied sources of an existing service, if it is new.
func (t *Tables) enableDenied(s *service, undo *undoLog) error {
	if t.services[s.key] != s || s.row.Flags&serviceDenies != 0 || len(s.extras().denied) == 0 {
		return nil
	}
	row := s.row
	row.Flags |= serviceDenies
	return t.putRows(s, row, undo)
}

// trimSources removes former prefixes of both lists.
func (t *Tables) trimSources(s *service, want *bpf.ServiceTable) error {
	if err := t.keepSources(s, allowedSources, want.Sources); err != nil {
		return err
	}
	if row := s.row; len(want.Denied) == 0 && row.Flags&serviceDenies != 0 {
		row.Flags &^= serviceDenies
		var never undoLog
		if err := t.putRows(s, row, &never); err != nil {
			return err
		}
	}
	return t.keepSources(s, deniedSources, want.Denied)
}

// putRows replaces the row of an existing service, at all of its VIPs.
func (t *Tables) putRows(s *service, row bpf.TcService, undo *undoLog) error {
	if err := t.putRow(s, row, true, undo); err != nil {
		return err
	}
	return t.putSecondary(s, s.secondaryVIPs(), undo)
}

// keepSources removes all prefixes from the service's list that are not in list.
func (t *Tables) keepSources(s *service, l sourceList, list []netip.Prefix) error {
	if s.extra == nil {
		return nil
	}
	known := l.listOf(s.extra)
	if err := t.deleteSources(sourceKeys(s.id, l, difference(*known, list))); err != nil {
		return err
	}
	*known = list
	return nil
}

func (t *Tables) deleteSources(all []bpf.TcSourceKey) error {
	for keys := range slices.Chunk(all, sourcesAtOnce) {
		n, err := t.maps.AllowedSources.BatchDelete(keys, nil)
		for errors.Is(err, ebpf.ErrKeyNotExist) && n < len(keys) { // the first key is gone already
			keys = keys[n+1:]
			if n, err = 0, nil; len(keys) > 0 {
				n, err = t.maps.AllowedSources.BatchDelete(keys, nil)
			}
		}
		if err != nil {
			return fmt.Errorf("delete sources: %w", err)
		}
	}
	return nil
}

func sourceKeys(id uint32, l sourceList, list []netip.Prefix) []bpf.TcSourceKey {
	keys := make([]bpf.TcSourceKey, len(list))
	for i, p := range list {
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += mappedBits
		}
		keys[i] = bpf.TcSourceKey{PrefixLength: uint32(sourceFixedBits + bits), List: id | uint32(l), Addr: bpf.Addr(p.Addr())}
	}
	return keys
}

// listOf returns the id of the service with a key, and the list that contains the key.
func listOf(k bpf.TcSourceKey) (id uint32, l sourceList) {
	l = sourceList(k.List) & deniedSources
	return k.List &^ uint32(l), l
}

// prefixOf returns the inverse of sourceKeys.
func prefixOf(k bpf.TcSourceKey) netip.Prefix {
	a, bits := k.Addr.Netip(), int(k.PrefixLength)-sourceFixedBits
	if a.Is4() && bits >= mappedBits {
		bits -= mappedBits
	}
	return netip.PrefixFrom(a, bits)
}

// adoptSources reads the lists, and removes lists of deleted services, and disabled lists, whose
// change an earlier process did not finish.
func (t *Tables) adoptSources() error {
	byID := make(map[uint32]*service, len(t.services))
	for _, s := range t.services {
		byID[s.id] = s
	}
	var stale []bpf.TcSourceKey
	err := rows.Each(t.maps.AllowedSources, func(k bpf.TcSourceKey, _ uint8) {
		id, l := listOf(k)
		if s, ok := byID[id]; ok && s.row.Flags&l.flag() != 0 {
			list := l.listOf(s.makeExtras())
			*list = append(*list, prefixOf(k))
		} else {
			stale = append(stale, k)
		}
	})
	if err != nil {
		return fmt.Errorf("read sources: %w", err)
	}
	for _, s := range byID {
		if s.extra != nil {
			s.extra.sources, s.extra.denied = lb.NormalSources(s.extra.sources), lb.NormalSources(s.extra.denied)
		}
	}
	return t.deleteSources(stale)
}

// difference returns the prefixes of a that b does not have; all lists are sorted.
func difference(a, b []netip.Prefix) []netip.Prefix {
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

// union returns the union of two lists, sorted.
func union(a, b []netip.Prefix) []netip.Prefix {
	if len(b) == 0 {
		return a
	}
	out := make([]netip.Prefix, 0, len(a)+len(b))
	return lb.NormalSources(append(append(out, a...), b...))
}

// Every connection belongs to a service. Connections translated by firewall rules belong to an
// internal one: it has the source's address, a protocol that no packet has, and one endpoint, which
// counts them. Other packages do not see it.

// isOfRules distinguishes an internal service from users' services.
func isOfRules(key bpf.TcServiceKey) bool { return key.Protocol == 0 }

func ruleSourceKey(a netip.Addr) bpf.TcServiceKey { return bpf.TcServiceKey{Vip: bpf.Addr(a)} }

// PutRuleSources makes the services for the sources of rules, and returns their endpoints.
func (t *Tables) PutRuleSources(list []netip.Addr) (endpoints []uint32, err error) {
	for _, a := range list {
		key := ruleSourceKey(a)
		table := bpf.ServiceTable{
			Key: key, Name: report.SourceName(a), Mode: uint8(bpf.TcServiceModeMODE_ONEARM),
			Endpoints: []bpf.EndpointTable{{Addr: bpf.Addr(netip.IPv4Unspecified()), Source: bpf.Addr(a)}},
		}
		if err := t.applyOne(Change{Key: key, Table: &table}); err != nil {
			return nil, err
		}
		t.mu.RLock()
		endpoints = append(endpoints, t.services[key].order[0].id)
		t.mu.RUnlock()
	}
	return endpoints, nil
}

// TrimRuleSources removes the services that no rule uses any longer. Their connections end.
func (t *Tables) TrimRuleSources(keep []netip.Addr) error {
	t.mu.RLock()
	var gone []bpf.TcServiceKey
	for key := range t.services {
		if isOfRules(key) && !slices.Contains(keep, key.Vip.Netip()) {
			gone = append(gone, key)
		}
	}
	t.mu.RUnlock()
	var errs []error
	for _, key := range gone {
		errs = append(errs, t.applyOne(Change{Key: key}))
	}
	return errors.Join(errs...)
}
