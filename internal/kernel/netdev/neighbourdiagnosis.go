package netdev

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/mirror"
)

// NeighbourKind is the subject of endpoints' problems.
const NeighbourKind = "endpoint"

// Problems returns the conditions that prevent packets from reaching endpoints: each failing next
// hop once, with the lowest of its endpoints.
func (k *NeighbourKeeper) Problems() []Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	var noWay lowest
	first := map[mirror.Hop]netip.Addr{}
	for a, p := range k.paths {
		switch {
		case p == nil:
		case p.err != nil, p.local && k.mirror.OnlyOurs(a):
			noWay.add(a)
		case p.local:
		default:
			if low, ok := first[p.hop(a)]; !ok || a.Less(low) {
				first[p.hop(a)] = a
			}
		}
	}
	var dead []Problem
	for h, a := range first {
		if p, bad := k.hopProblem(h, a); bad {
			dead = append(dead, p)
		}
	}
	without := make([]Problem, len(noWay.addrs))
	for i, a := range noWay.addrs {
		without[i] = noRoute(a, k.paths[a].err)
	}
	return append(BoundedProblems(without, noWay.total, NeighbourKind, "endpoints without a route"),
		BoundedProblems(dead, len(dead), NeighbourKind, "next hops that do not work")...)
}

// Excluded returns a problem for each interface that leads to endpoints and is not selected. The
// data path is not attached to it, so answers that arrive there are not translated back. needs
// reports whether answers of an endpoint must pass this machine.
func (k *NeighbourKeeper) Excluded(selected []Link, needs func(netip.Addr) bool) []Problem {
	attached := make(map[int]bool, len(selected))
	for _, l := range selected {
		attached[l.Index] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	lowest := map[int]netip.Addr{}
	for a, p := range k.paths {
		if p == nil || p.err != nil || p.local || attached[p.link] || !needs(a) {
			continue
		}
		if low, ok := lowest[p.link]; !ok || a.Less(low) {
			lowest[p.link] = a
		}
	}
	var list []Problem
	for index, a := range lowest {
		if l := k.mirror.Link(index); l.Index != 0 && !l.Loopback() {
			list = append(list, excluded(l, a))
		}
	}
	return BoundedProblems(list, len(list), NeighbourKind, "interfaces that lead to endpoints and are excluded")
}

func excluded(l Link, a netip.Addr) Problem {
	return Problem{
		Kind: NeighbourKind, Key: a.String(),
		What: fmt.Sprintf("endpoint %s is reached through interface %s, which --whitelist or --blacklist excludes: its answers are not translated", a, l.Name),
		Hint: fmt.Sprintf("choose %s, too, or endpoints behind another interface", l.Name),
	}
}

// RouteError returns why the last lookup found no route to an endpoint, or nil. The data path drops
// packets to an endpoint without a route.
func (k *NeighbourKeeper) RouteError(a netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.paths[a]; p.lost() {
		return noRoute(a, p.err)
	}
	return nil
}

// lowest keeps the lowest addresses, as many as are shown: all of 262,144 endpoints may be without
// a route.
type lowest struct {
	addrs []netip.Addr
	total int
}

func (l *lowest) add(a netip.Addr) {
	l.total++
	i, _ := slices.BinarySearchFunc(l.addrs, a, netip.Addr.Compare)
	if i == ProblemsShown {
		return
	}
	l.addrs = slices.Insert(l.addrs, i, a)
	l.addrs = l.addrs[:min(len(l.addrs), ProblemsShown)]
}

// noRoute returns why there is no route to an endpoint; err nil: the endpoint is one of our VIPs.
func noRoute(a netip.Addr, err error) Problem {
	switch {
	case err == nil:
		return Problem{
			Kind: NeighbourKind, Key: a.String(),
			What: fmt.Sprintf("endpoint %s is a VIP of this load balancer, and no service is there", a),
			Hint: "create that service, or use an endpoint that is not a VIP",
		}
	case errors.Is(err, unix.ENETUNREACH):
		return Problem{
			Kind: NeighbourKind, Key: a.String(),
			What: fmt.Sprintf("there is no route to endpoint %s", a),
			Hint: fmt.Sprintf("add one (ip route add %s via GATEWAY), or set the interface up that has it", a),
		}
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return Problem{
			Kind: NeighbourKind, Key: a.String(),
			What: fmt.Sprintf("the route to endpoint %s refuses packets: it is unreachable, prohibit or blackhole", a),
			Hint: fmt.Sprintf("replace it (see: ip route get %s)", a),
		}
	}
	return Problem{
		Kind: NeighbourKind, Key: a.String(),
		What: fmt.Sprintf("the route to endpoint %s could not be looked up: %v", a, err),
		Hint: fmt.Sprintf("see: ip route get %s", a),
	}
}

func (k *NeighbourKeeper) hopProblem(h mirror.Hop, a netip.Addr) (Problem, bool) {
	l := k.mirror.Link(h.Link)
	switch {
	case l.Index == 0: // until the kernel has looked up another route
		return Problem{
			Kind: NeighbourKind, Key: a.String(),
			What: fmt.Sprintf("the interface that led to endpoint %s is gone", a),
			Hint: fmt.Sprintf("see where packets would go now: ip route get %s", a),
		}, true
	case !l.Up:
		return Problem{
			Kind: NeighbourKind, Key: a.String(),
			What: fmt.Sprintf("interface %s, which leads to endpoint %s, is down", l.Name, a),
			Hint: fmt.Sprintf("set it up: ip link set %s up", l.Name),
		}, true
	case !l.Running():
		return Problem{
			Kind: NeighbourKind, Key: a.String(),
			What: fmt.Sprintf("interface %s, which leads to endpoint %s, has no carrier", l.Name, a),
			Hint: "connect it, or set its other end up",
		}, true
	case k.mirror.Neighbour(h).Silent:
		asked := "ARP"
		if h.Via.Is6() {
			asked = "neighbour discovery"
		}
		return Problem{
			Kind: NeighbourKind, Key: a.String(),
			What: fmt.Sprintf("%s on %s, the next hop to endpoint %s, does not answer %s", h.Via, l.Name, a, asked),
			Hint: fmt.Sprintf("see that %s is up and in the network of %s", h.Via, l.Name),
		}, true
	}
	return Problem{}, false
}
