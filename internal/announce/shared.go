package announce

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Shared is an Owner for several users: a VIP is released when its last user gives it up.
type Shared struct {
	owner Owner

	mu     sync.Mutex // also held during calls of owner, to keep the order of requests
	wanted []map[netip.Addr]bool
}

// Share shares an owner among several users.
func Share(o Owner) *Shared { return &Shared{owner: o} }

// Part returns an Owner for one user.
func (s *Shared) Part() Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = append(s.wanted, map[netip.Addr]bool{})
	return &part{s, len(s.wanted) - 1}
}

type part struct {
	*Shared
	i int
}

// Set makes this part want exactly these.
func (p *part) Set(ctx context.Context, vips []netip.Addr) map[netip.Addr]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := make(map[netip.Addr]bool, len(vips))
	for _, a := range vips {
		mine[a] = true
	}
	p.wanted[p.i] = mine
	all := map[netip.Addr]bool{}
	for _, wanted := range p.wanted {
		maps.Copy(all, wanted)
	}
	return p.owner.Set(ctx, slices.SortedFunc(maps.Keys(all), netip.Addr.Compare))
}

func (p *part) Add(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range vips {
		p.wanted[p.i][a] = true
	}
	return p.owner.Add(ctx, vips...)
}

func (p *part) Remove(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []netip.Addr
	for _, a := range vips {
		delete(p.wanted[p.i], a)
		if !slices.ContainsFunc(p.wanted, func(wanted map[netip.Addr]bool) bool { return wanted[a] }) {
			gone = append(gone, a)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return p.owner.Remove(ctx, gone...)
}
