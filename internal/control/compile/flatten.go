package compile

import (
	"math/bits"
	"net/netip"

	"loxilb/internal/lb"
)

// maxShare bounds the common denominator of shares. Shares with a larger one are exact to within a
// millionth.
const maxShare = 1 << 20

// weighted is an endpoint with its share of new connections. parent is the index of the service's
// own endpoint through which it is reached.
type weighted struct {
	lb.Endpoint
	parent uint32
	share  uint64
}

// flatten returns the endpoints of a service whose inner services are resolved. Each address and
// port is listed once, with the combined share of all paths to it. If there are more than
// lb.MaxEndpointsPerService endpoints or maxPaths paths, the rest is left out and complete is
// false.
func (n *node) flatten() (endpoints []lb.Endpoint, parents []uint32, complete bool) {
	groups, complete := n.groups()
	common := uint64(1)
	for _, g := range groups {
		for _, sum := range g.sums {
			if sum > 0 {
				common = min(maxShare, common/gcd(common, sum)*sum)
			}
		}
	}
	first := map[netip.AddrPort]int{}
	var list []weighted
	for i, g := range groups {
		weight := weightIn(&n.service, n.service.Endpoints[i])
		for _, e := range g.endpoints {
			e.parent = uint32(i)
			if e.share > 0 && weight > 0 {
				e.share = max(1, weight*e.share*common/g.sums[e.Backup]) // at most 2^36
			} else {
				e.share = 0
			}
			e.Backup = min(e.Backup+n.service.Endpoints[i].Backup, lb.MaxBackup)
			if at, ok := first[e.AddrPort()]; ok {
				list[at].share += e.share
				list[at].Backup = min(list[at].Backup, e.Backup)
			} else if len(list) < lb.MaxEndpointsPerService {
				first[e.AddrPort()] = len(list)
				list = append(list, e)
			} else {
				complete = false
			}
		}
	}
	setWeights(list)
	endpoints, parents = make([]lb.Endpoint, len(list)), make([]uint32, len(list))
	for i, e := range list {
		endpoints[i], parents[i] = e.Endpoint, e.parent
	}
	return endpoints, parents, complete
}

// group has the endpoints behind one endpoint of a service, with their levels of backups.
type group struct {
	endpoints []weighted
	sums      [lb.MaxBackup + 1]uint64 // sum of the shares at each level: backups do not reduce the shares of lower levels
}

// groups returns the groups of a service's endpoints. complete is false if there are more than
// maxPaths paths.
func (n *node) groups() (groups []group, complete bool) {
	groups = make([]group, len(n.service.Endpoints))
	left := maxPaths
	for i, e := range n.service.Endpoints {
		g := &groups[i]
		inner := n.inner[i]
		switch {
		case inner == nil:
			g.endpoints, g.sums[0] = []weighted{{Endpoint: e, share: 1}}, 1
			g.endpoints[0].Backup = 0
		case inner.component == n.component: // a loop
			continue
		case len(inner.resolved.Endpoints) > left:
			return groups, false
		default:
			n.addInner(g, inner, e)
		}
		left -= len(g.endpoints)
	}
	return groups, true
}

// addInner adds the endpoints of an inner service, reached through endpoint e, except endpoints
// that are invalid for the outer service.
func (n *node) addInner(g *group, inner *node, e lb.Endpoint) {
	for _, b := range inner.resolved.Endpoints {
		share := weightIn(&inner.resolved, b)
		if b.PortMax != 0 {
			b.Port, b.PortMax = b.Port+e.Port-inner.service.Port, 0
			if e.PortMax != 0 {
				b.PortMax = b.Port + e.PortMax - e.Port
			}
		}
		if n.service.ValidateEndpoint(b) == nil {
			g.endpoints = append(g.endpoints, weighted{Endpoint: b, share: share})
			g.sums[b.Backup] += share
		}
	}
}

// weightIn returns the weight that an endpoint has under its service's algorithm.
func weightIn(s *lb.Service, e lb.Endpoint) uint64 {
	if s.Algorithm.Layout() == lb.LayoutOnce {
		return uint64(min(e.Weight, 1))
	}
	return uint64(e.Weight)
}

// setWeights converts shares to weights: it divides them by their greatest common divisor, and
// scales them down if they are too large, but none to 0.
func setWeights(list []weighted) {
	var common, most uint64
	for _, e := range list {
		common, most = gcd(e.share, common), max(most, e.share)
	}
	for i := range list {
		e := &list[i]
		if e.share > 0 {
			e.share /= common
			if most := most / common; most > lb.MaxWeight {
				high, low := bits.Mul64(e.share, lb.MaxWeight)
				share, _ := bits.Div64(high, low, most)
				e.share = max(1, share)
			}
		}
		e.Weight = uint16(e.share)
	}
}
