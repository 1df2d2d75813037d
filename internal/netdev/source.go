package netdev

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Sources finds this machine's own addresses towards others.
type Sources struct {
	net   *Net
	mu    sync.Mutex
	route *conn
}

// Towards asks the kernel which address of this machine packets to each of the hosts would have: that of the longest
// route, or of the interface that it leads through. Hosts without a way, of this machine itself, or that only a
// link-local address reaches, are left out. It costs about 3 us a host.
func (s *Sources) Towards(ctx context.Context, hosts []netip.Addr) (map[netip.Addr]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[netip.Addr]netip.Addr, len(hosts))
	for part := range slices.Chunk(hosts, warmSlice) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		requests := make([]*request, len(part))
		for i, a := range part {
			requests[i] = routeTo(a)
		}
		err := s.route.batch(requests, func(i int, answer []byte, err error) {
			rt, ok := parseRoute(answer)
			if err == nil && ok && rt.kind == unix.RTN_UNICAST && rt.source.IsGlobalUnicast() {
				out[part[i]] = rt.source
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Addresses lists the addresses of this machine that others can reach, but for VIPs that VIPs owns.
func (n *Net) Addresses() []netip.Addr {
	s := n.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []netip.Addr
	for a, places := range s.addresses {
		if a.IsGlobalUnicast() && slices.ContainsFunc(places, func(p address) bool { return !p.ours }) {
			out = append(out, a)
		}
	}
	return out
}

// onlyVIP tells whether an address is here for nothing but a service.
func (n *Net) onlyVIP(a netip.Addr) bool {
	s := n.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	places := s.addresses[a]
	return len(places) > 0 && !slices.ContainsFunc(places, func(p address) bool { return !p.ours })
}
