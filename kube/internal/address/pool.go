// Package address allocates VIPs to services. It does no I/O: after a restart, its state is rebuilt
// from the statuses of services, which are the only record of addresses.
package address

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// DefaultPool is the name of the command line's pool for services that select no pool.
const DefaultPool = "defaultPool"

// Sharing is the condition under which services with different ports may have the same address.
type Sharing string

// Values of Sharing.
const (
	ShareNever  Sharing = "Never"
	ShareByKey  Sharing = "Key" // services with the same sharing key
	ShareAlways Sharing = "Always"
)

// Pool is a set of addresses for services.
type Pool struct {
	Name       string
	Ranges     []Range
	Auto       bool // also for services that select no pool
	Sharing    Sharing
	Priority   int32           // pools with a higher priority are used first
	Selector   labels.Selector // nil: all services
	Namespaces []string        // empty: all
	Problem    string          // why the pool is not used; empty: it is used
}

// Range is a range of addresses of one family, both ends included.
type Range struct{ First, Last netip.Addr }

// ParseRange reads a prefix, two addresses with a dash in between, or one address. The first and
// the last address of an IPv4 prefix up to /30 are omitted: they are not host addresses. So is the
// first address of an IPv6 prefix up to /126: each router of that network answers for it (RFC
// 4291).
func ParseRange(text string) (Range, error) {
	text = strings.TrimSpace(text)
	if first, last, ok := strings.Cut(text, "-"); ok {
		return parseEnds(text, first, last)
	}
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return Range{}, fmt.Errorf("addresses %q are neither a prefix (192.0.2.0/24), a range (192.0.2.1-192.0.2.9) nor an address", text)
		}
		return checkUsable(text, Range{a.Unmap(), a.Unmap()})
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return Range{}, fmt.Errorf("addresses %q are not a valid prefix, such as 192.0.2.0/24", text)
	}
	r := Range{p.Masked().Addr(), lastOf(p)}
	if p.Addr().Is4() && p.Bits() <= 30 {
		r.First, r.Last = r.First.Next(), r.Last.Prev()
	}
	if p.Addr().Is6() && p.Bits() <= 126 {
		r.First = r.First.Next()
	}
	return checkUsable(text, r)
}

func parseEnds(text, first, last string) (Range, error) {
	a, err1 := netip.ParseAddr(strings.TrimSpace(first))
	b, err2 := netip.ParseAddr(strings.TrimSpace(last))
	switch {
	case err1 != nil || err2 != nil || a.Zone() != "" || b.Zone() != "":
		return Range{}, fmt.Errorf("addresses %q are not a valid range, such as 192.0.2.1-192.0.2.9", text)
	case a.Is4() != b.Is4():
		return Range{}, fmt.Errorf("addresses %q mix IPv4 and IPv6", text)
	case b.Less(a):
		return Range{}, fmt.Errorf("addresses %q end before they begin", text)
	}
	return checkUsable(text, Range{a.Unmap(), b.Unmap()})
}

// checkUsable returns a range, or an error if no service can have some of its addresses.
func checkUsable(text string, r Range) (Range, error) {
	for _, never := range neverUsable() {
		if r.overlaps(Range{never.Addr(), lastOf(never)}) {
			return Range{}, fmt.Errorf("addresses %q contain some of %s, which no service can have", text, never)
		}
	}
	return r, nil
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// ParsePools reads pools of the command line: NAME=RANGE, separated by commas. A range without a
// name belongs to DefaultPool, which is the only pool for services that select none.
func ParsePools(text string, sharing Sharing) ([]Pool, error) {
	var pools []Pool
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		name, addresses, named := strings.Cut(one, "=")
		if !named {
			name, addresses = DefaultPool, one
		}
		r, err := ParseRange(addresses)
		if err != nil {
			return nil, fmt.Errorf("pool %q: %w", name, err)
		}
		i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == name })
		if i < 0 {
			pools = append(pools, Pool{Name: name, Auto: name == DefaultPool, Sharing: sharing})
			i = len(pools) - 1
		}
		pools[i].Ranges = append(pools[i].Ranges, r)
	}
	return pools, nil
}

func (r Range) contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && !a.Less(r.First) && !r.Last.Less(a)
}

func (r Range) overlaps(other Range) bool {
	return r.First.BitLen() == other.First.BitLen() && !r.Last.Less(other.First) && !other.Last.Less(r.First)
}

// size returns the number of addresses, at most math.MaxInt64.
func (r Range) size() int64 {
	first, last := new(big.Int).SetBytes(r.First.AsSlice()), new(big.Int).SetBytes(r.Last.AsSlice())
	n := last.Sub(last, first)
	if !n.IsInt64() || n.Int64() == math.MaxInt64 {
		return math.MaxInt64
	}
	return n.Int64() + 1
}

// Contains reports whether an address is in a range of the pool.
func (p *Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.contains(a) })
}

// selects reports whether the pool's namespaces and selector allow a service.
func (p *Pool) selects(r *Request) bool {
	return (len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, r.Namespace)) &&
		(p.Selector == nil || p.Selector.Matches(labels.Set(r.Labels)))
}

// Overlap describes ranges of a pool that overlap each other or an earlier pool; empty: none do.
func (p *Pool) Overlap(earlier []Pool) string {
	for i, r := range p.Ranges {
		for _, own := range p.Ranges[:i] {
			if r.overlaps(own) {
				return fmt.Sprintf("its range %s-%s overlaps another one of its own, %s-%s", r.First, r.Last, own.First, own.Last)
			}
		}
		for j := range earlier {
			for _, other := range earlier[j].Ranges {
				if earlier[j].Problem == "" && r.overlaps(other) {
					return fmt.Sprintf("its range %s-%s overlaps %s-%s of pool %q", r.First, r.Last, other.First, other.Last, earlier[j].Name)
				}
			}
		}
	}
	return ""
}
