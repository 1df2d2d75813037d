package netdev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// diagnoseEvery and diagnoseGap bound how often problems are looked for: at once after a change, but never twice
	// within the gap, as it costs a walk over all VIPs and endpoints.
	diagnoseEvery = 10 * time.Second
	diagnoseGap   = time.Second
	// shownProblems bounds the problems of one sort.
	shownProblems = 8
)

// Problem is something outside the load balancer that keeps a service from working: one sentence of what is wrong, and
// one of what mends it.
type Problem struct {
	What string
	Mend string
}

// health knows the present problems.
type health struct {
	soon chan struct{} // capacity 1

	mu       sync.Mutex
	unset    []Problem // of keepForwarding
	problems map[Problem]struct{}
	ignore   map[int]int // arp_ignore by link when it was last looked at
}

func newHealth() *health {
	return &health{soon: make(chan struct{}, 1), problems: map[Problem]struct{}{}}
}

func (h *health) forwarding(problems []Problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unset = problems
}

func (n *Net) diagnoseSoon() {
	select {
	case n.health.soon <- struct{}{}:
	default:
	}
}

// diagnose looks for problems until ctx ends, and logs them when they appear and when they are gone.
func (n *Net) diagnose(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.health.soon:
		case <-time.After(diagnoseEvery):
			n.vips.again(ctx)
		}
		appeared, gone := n.health.change(n.Diagnose())
		for _, p := range appeared {
			n.log.Warn("problem", "what", p.What, "mend", p.Mend)
		}
		for _, p := range gone {
			n.log.Info("problem is gone", "what", p.What)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(diagnoseGap):
		}
	}
}

// change takes the problems of now and returns those that are new and those that are no more, in order.
func (h *health) change(now []Problem) (appeared, gone []Problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := map[Problem]struct{}{}
	for _, p := range now {
		if _, had := h.problems[p]; !had {
			appeared = append(appeared, p)
		}
		next[p] = struct{}{}
	}
	for p := range h.problems {
		if _, has := next[p]; !has {
			gone = append(gone, p)
		}
	}
	h.problems = next
	return appeared, gone
}

// Diagnose returns what is wrong now, as far as it is known: VIPs are those of VIPs, endpoints those of Warmer.
func (n *Net) Diagnose() []Problem {
	n.health.mu.Lock()
	out := slices.Clone(n.health.unset)
	n.health.mu.Unlock()
	return append(append(out, n.vips.diagnose()...), n.warmer.diagnose()...)
}

// again tries once more what failed, and what depends on settings that the kernel does not report.
func (v *VIPs) again(ctx context.Context) {
	v.mu.Lock()
	c := change{addresses: slices.Collect(maps.Keys(v.failed))}
	v.mu.Unlock()
	now := v.net.ignores()
	h := v.net.health
	h.mu.Lock()
	c.places = h.ignore != nil && !maps.Equal(h.ignore, now)
	h.ignore = now
	h.mu.Unlock()
	if !c.empty() {
		v.moved(ctx, c)
	}
}

// ignores returns the arp_ignore of every link with a connected IPv4 network.
func (n *Net) ignores() map[int]int {
	links := map[int]Link{}
	n.state.mu.RLock()
	for net := range n.state.networks {
		if l, ok := n.state.links[net.link]; ok && net.prefix.Addr().Is4() {
			links[net.link] = l
		}
	}
	n.state.mu.RUnlock()
	out := make(map[int]int, len(links))
	for i, l := range links {
		out[i] = n.arpIgnore(l)
	}
	return out
}

func (v *VIPs) diagnose() []Problem {
	ignores := v.net.ignores()
	v.mu.Lock()
	defer v.mu.Unlock()
	out := bounded(slices.Collect(maps.Values(v.failed)), "VIPs that cannot be added")
	deaf := map[int]netip.Addr{} // links that do not answer ARP for a VIP, and the first one
	s := v.net.state
	s.mu.RLock()
	for a := range v.want {
		if !a.Is4() {
			continue
		}
		for _, l := range s.onLink(a) {
			mode, ours := ignores[l.Index], len(v.have[a]) > 0
			if first := deaf[l.Index]; (mode == 8 || (mode == 3 && ours)) && (!first.IsValid() || a.Less(first)) {
				deaf[l.Index] = a
			}
		}
	}
	s.mu.RUnlock()
	for _, i := range slices.Sorted(maps.Keys(deaf)) {
		name := v.net.linkName(i)
		out = append(out, Problem{
			What: fmt.Sprintf("%s does not answer ARP for VIPs such as %s: its arp_ignore is %d", name, deaf[i], ignores[i]),
			Mend: fmt.Sprintf("set net.ipv4.conf.all.arp_ignore=0 and net.ipv4.conf.%s.arp_ignore=0 (1 and 2 do as well)", name),
		})
	}
	return out
}

// diagnose tells of each next hop that does not work once, with the lowest of its endpoints.
func (w *Warmer) diagnose() []Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	var noWay []Problem
	first := map[hop]netip.Addr{}
	for a, p := range w.paths {
		switch {
		case !p.known:
		case p.err != nil:
			noWay = append(noWay, noRoute(a, p.err))
		case p.local && w.net.onlyVIP(a):
			noWay = append(noWay, Problem{
				What: fmt.Sprintf("endpoint %s is a VIP of this load balancer, and no service is there", a),
				Mend: "create that service, or use an endpoint that is not a VIP",
			})
		case p.local:
		default:
			if low, ok := first[p.hop]; !ok || a.Less(low) {
				first[p.hop] = a
			}
		}
	}
	var dead []Problem
	s := w.net.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	for h, a := range first {
		if p, bad := s.ofHop(h, a); bad {
			dead = append(dead, p)
		}
	}
	return append(bounded(noWay, "endpoints without a way to them"), bounded(dead, "next hops that do not work")...)
}

func noRoute(a netip.Addr, err error) Problem {
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return Problem{
			What: fmt.Sprintf("there is no route to endpoint %s", a),
			Mend: fmt.Sprintf("add one (ip route add %s via GATEWAY), or set the interface up that has it", a),
		}
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return Problem{
			What: fmt.Sprintf("the route to endpoint %s refuses packets: it is unreachable, prohibit or blackhole", a),
			Mend: fmt.Sprintf("replace it (see: ip route get %s)", a),
		}
	}
	return Problem{
		What: fmt.Sprintf("the route to endpoint %s could not be looked up: %v", a, err),
		Mend: fmt.Sprintf("see: ip route get %s", a),
	}
}

func (s *state) ofHop(h hop, a netip.Addr) (Problem, bool) {
	l := s.links[h.link]
	switch n := s.neighbours[neighbourKey{link: h.link, addr: h.via}]; {
	case !l.Up:
		return Problem{
			What: fmt.Sprintf("interface %s, which leads to endpoint %s, is down", l.Name, a),
			Mend: fmt.Sprintf("set it up: ip link set %s up", l.Name),
		}, true
	case !l.Running():
		return Problem{
			What: fmt.Sprintf("interface %s, which leads to endpoint %s, has no carrier", l.Name, a),
			Mend: "connect it, or set its other end up",
		}, true
	case n.silent:
		asked := "ARP"
		if h.via.Is6() {
			asked = "neighbour discovery"
		}
		return Problem{
			What: fmt.Sprintf("%s on %s, the next hop to endpoint %s, does not answer %s", h.via, l.Name, a, asked),
			Mend: fmt.Sprintf("see that %s is up and in the network of %s", h.via, l.Name),
		}, true
	}
	return Problem{}, false
}

// bounded sorts problems of one sort and cuts them short.
func bounded(list []Problem, what string) []Problem {
	slices.SortFunc(list, func(a, b Problem) int { return cmp.Compare(a.What, b.What) })
	if len(list) <= shownProblems {
		return list
	}
	more := Problem{What: fmt.Sprintf("%d more %s", len(list)-shownProblems, what), Mend: "mend those named first"}
	return append(list[:shownProblems:shownProblems], more)
}
