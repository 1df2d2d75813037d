package compile

import (
	"net/netip"
	"slices"

	"loxilb/internal/lb"
)

// maxShare bounds the common denominator of shares: below it they are exact, above within a millionth.
const maxShare = 1 << 20

// Fold replaces endpoints that are services themselves by the endpoints of those, each with its part of the weight,
// so that a connection is balanced once and translated once. at finds the service that packets of a key reach. All
// but endpoints and weights is the outer service's own: mode, algorithm, sources, timeouts, counters.
//
// of says which of the service's own endpoints each of the new ones belongs to; nil: no endpoint is a service, and s
// is returned as it is. An endpoint that leads back to its own service is left out, as are those that s could not have
// itself (another port in mode dsr, say) and what comes after lb.MaxEndpointsPerService.
func Fold(s lb.Service, at func(lb.Key) (lb.Service, bool)) (folded lb.Service, of []uint32) {
	if !slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
		_, ok := at(behind(&s, e))
		return ok
	}) {
		return s, nil
	}
	leaves := merge(fold(&s, &s, at, nil))
	s.Endpoints = make([]lb.Endpoint, len(leaves))
	of = make([]uint32, len(leaves))
	for i, l := range leaves {
		s.Endpoints[i], of[i] = l.Endpoint, l.of
	}
	if s.Algorithm == lb.RoundRobin {
		s.Algorithm = lb.Priority // the order is the same, and shares are weights
	}
	return s, of
}

// leaf is an endpoint that is no service.
type leaf struct {
	lb.Endpoint
	of    uint32
	share uint64
}

// behind is the key by which packets to an endpoint would find a service.
func behind(s *lb.Service, e lb.Endpoint) lb.Key {
	return lb.Key{VIP: e.Addr, Port: e.Port, PortMax: e.PortMax, Protocol: s.Protocol, Mark: s.Mark}
}

// fold lists the leaves of a service, as far as root takes them. path are the services that led to it.
func fold(root, s *lb.Service, at func(lb.Key) (lb.Service, bool), path []lb.Key) []leaf {
	path = append(path, s.Key)
	groups := make([][]leaf, len(s.Endpoints))
	common := uint64(1)
	for i, e := range s.Endpoints {
		inner, ok := at(behind(s, e))
		switch {
		case !ok:
			groups[i] = []leaf{{Endpoint: e, share: 1}}
		case !slices.Contains(path, inner.Key):
			groups[i] = slices.DeleteFunc(move(fold(root, &inner, at, path), &inner, e), func(l leaf) bool {
				return s == root && root.ValidateEndpoint(l.Endpoint) != nil
			})
		}
		if sum := total(groups[i]); sum > 0 {
			common = min(maxShare, common/divisor(common, sum)*sum)
		}
	}
	var out []leaf
	for i, group := range groups {
		weight, sum := unit(s, s.Endpoints[i]), total(group)
		for _, l := range group {
			l.of = uint32(i)
			if l.share > 0 && weight > 0 { // at most 2^16 * 2^16 * 2^20
				l.share = max(1, weight*l.share*common/sum)
			} else {
				l.share = 0
			}
			out = append(out, l)
		}
	}
	return fit(out)
}

// unit is what an endpoint's weight means to its service's algorithm.
func unit(s *lb.Service, e lb.Endpoint) uint64 {
	if s.Algorithm == lb.RoundRobin {
		return uint64(min(e.Weight, 1))
	}
	return uint64(e.Weight)
}

// move puts the ports of a service's endpoints to those that packets to e reach them at.
func move(leaves []leaf, inner *lb.Service, e lb.Endpoint) []leaf {
	for i := range leaves {
		l := &leaves[i]
		if l.PortMax == 0 {
			continue
		}
		l.Port, l.PortMax = l.Port+e.Port-inner.Port, 0
		if e.PortMax != 0 {
			l.PortMax = l.Port + e.PortMax - e.Port
		}
	}
	return leaves
}

// fit makes weights of shares: divided by what they have in common and, where they are too large, shrunk, none to 0.
func fit(leaves []leaf) []leaf {
	var common, most uint64
	for _, l := range leaves {
		common, most = divisor(l.share, common), max(most, l.share)
	}
	for i := range leaves {
		l := &leaves[i]
		if l.share > 0 {
			l.share /= common
			if most/common > lb.MaxWeight {
				l.share = max(1, l.share*lb.MaxWeight/(most/common))
			}
		}
		l.Weight = uint16(l.share)
	}
	return leaves
}

// merge has each address and port once, with the weights of all.
func merge(leaves []leaf) []leaf {
	first := make(map[netip.AddrPort]int, len(leaves))
	var out []leaf
	for _, l := range leaves {
		if i, ok := first[l.AddrPort()]; ok {
			out[i].share += l.share
			continue
		}
		if len(out) < lb.MaxEndpointsPerService {
			first[l.AddrPort()] = len(out)
			out = append(out, l)
		}
	}
	return fit(out)
}

func total(leaves []leaf) (sum uint64) {
	for _, l := range leaves {
		sum += l.share
	}
	return sum
}

// divisor is the greatest common one; that of 0 and n is n.
func divisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
