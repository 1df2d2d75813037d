package compile

import (
	"net/netip"
	"slices"
	"strconv"

	"loxilb/internal/lb"
)

const (
	// MaxDepth is the maximum length of a chain of services in which each is an endpoint of the
	// previous one. A change of the last one changes all.
	MaxDepth = 64
	// maxPaths bounds the endpoints behind one service, counted once per path to them.
	maxPaths = 16 * lb.MaxEndpointsPerService
)

// Services are the services of one snapshot.
type Services interface {
	// Reach returns the service that packets with the key's destination and mark reach.
	Reach(lb.Key) (lb.Service, bool)
	// HasVIP reports whether any service has the address.
	HasVIP(netip.Addr) bool
}

// Resolver replaces endpoints that are services themselves by these services' endpoints, with their
// share of the weight, so a connection is balanced once and translated once. It is for a single
// snapshot, and not safe for concurrent use. Each inner service is resolved once, even if several
// services lead to it.
type Resolver struct {
	services   Services
	nodes      map[lb.Key]*node
	components int
	vipCache   [vipCacheSize]vipCacheEntry
}

// vipCacheSize is the size of the cache of HasVIP's answers. Endpoints usually have few addresses,
// and hardly any is a VIP.
const vipCacheSize = 1024

type vipCacheEntry struct {
	addr netip.Addr
	has  bool
}

// node is a service that is an endpoint of other services, or has services as endpoints.
type node struct {
	service    lb.Service
	inner      []*node // by endpoint; nil: not a service
	component  int     // strongly connected component: equal for services that lead to each other
	depth      int     // length of the longest chain of services behind this one
	isEndpoint bool    // it is an endpoint of another service
	done       bool    // the following members are valid
	resolved   lb.Service
	parents    []uint32
	err        error
}

// NewResolver returns a resolver for a snapshot.
func NewResolver(s Services) *Resolver {
	return &Resolver{services: s, nodes: map[lb.Key]*node{}}
}

// Resolve returns a service of the snapshot with the endpoints and weights that the data path uses.
// parents has the index of the service's own endpoint for each new endpoint; nil: no endpoint is a
// service, and s is returned unchanged. Endpoints that are invalid for s (such as another port in
// mode dsr) are left out.
//
// It returns an error if the service leads back to itself, through too many services, or to too
// many endpoints. The remaining endpoints are returned nevertheless: changes with an error are
// refused, but state from files is used as far as possible.
func (r *Resolver) Resolve(s lb.Service) (resolved lb.Service, parents []uint32, err error) {
	n := r.nodes[s.Key]
	if n == nil {
		if !slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
			_, ok := r.serviceBehind(&s, e)
			return ok
		}) {
			return s, nil, nil
		}
		n = &node{service: s}
		r.nodes[s.Key] = n
	}
	if !n.done {
		r.visit(n)
	}
	resolved, parents, err = n.resolved, n.parents, n.err
	if !n.isEndpoint { // usually not needed again
		delete(r.nodes, s.Key)
	}
	return resolved, parents, err
}

// serviceBehind returns the service that packets to an endpoint would reach, if they had the mark
// of service s.
func (r *Resolver) serviceBehind(s *lb.Service, e lb.Endpoint) (lb.Service, bool) {
	b := e.Addr.As16()
	vip := &r.vipCache[(int(b[15])|int(b[14])<<8)%vipCacheSize]
	if vip.addr != e.Addr {
		*vip = vipCacheEntry{e.Addr, r.services.HasVIP(e.Addr)}
	}
	if !vip.has {
		return lb.Service{}, false
	}
	return r.services.Reach(lb.Key{VIP: e.Addr, Port: e.Port, PortMax: e.PortMax, Protocol: s.Protocol, Mark: s.Mark})
}

// visit resolves a service and all services that it leads to, innermost first: Tarjan's algorithm
// for strongly connected components, with an explicit stack, as a chain of services may be long.
func (r *Resolver) visit(root *node) {
	type step struct {
		*node
		order, low int // number of the first visit; that of the earliest node that it leads back to
		next       int // endpoint to follow
	}
	var path []step
	var open []*node // nodes without a component yet
	visited := map[*node]int{}
	enter := func(n *node) {
		r.expand(n)
		visited[n] = len(visited)
		open = append(open, n)
		path = append(path, step{node: n, order: visited[n], low: visited[n]})
	}
	for enter(root); len(path) > 0; {
		at := &path[len(path)-1]
		if at.next < len(at.inner) {
			inner := at.inner[at.next]
			at.next++
			if inner == nil || inner.done {
				continue
			}
			if order, ok := visited[inner]; ok {
				at.low = min(at.low, order)
			} else {
				enter(inner)
			}
			continue
		}
		done := *at
		path = path[:len(path)-1]
		if len(path) > 0 {
			path[len(path)-1].low = min(path[len(path)-1].low, done.low)
		}
		if done.low == done.order {
			open = r.closeComponent(open, done.node)
		}
	}
}

// closeComponent resolves the component that begins at first, and removes its nodes from open.
func (r *Resolver) closeComponent(open []*node, first *node) []*node {
	i := len(open) - 1
	for open[i] != first {
		i--
	}
	r.components++
	for _, n := range open[i:] {
		n.component = r.components
	}
	for _, n := range open[i:] {
		n.finish()
	}
	return open[:i]
}

// expand sets the inner services of a service.
func (r *Resolver) expand(n *node) {
	for i, e := range n.service.Endpoints {
		s, ok := r.serviceBehind(&n.service, e)
		if !ok {
			continue
		}
		if n.inner == nil {
			n.inner = make([]*node, len(n.service.Endpoints))
		}
		inner := r.nodes[s.Key]
		if inner == nil {
			inner = &node{service: s}
			r.nodes[s.Key] = inner
		}
		inner.isEndpoint = true
		n.inner[i] = inner
	}
}

// finish resolves a service whose inner services are resolved, except for inner services that lead
// back to it.
func (n *node) finish() {
	n.done = true
	n.resolved = n.service
	if n.inner == nil {
		return
	}
	loop := false
	for _, inner := range n.inner {
		switch {
		case inner == nil:
		case inner.component == n.component:
			loop = true
		default:
			n.depth = max(n.depth, inner.depth+1)
		}
	}
	var complete bool
	n.resolved.Endpoints, n.parents, complete = n.flatten()
	if n.service.Algorithm.Layout() == lb.LayoutOnce {
		n.resolved.Algorithm = lb.Priority // the order stays, and shares become weights
	}
	switch {
	case loop:
		n.err = n.refuse("lead back to the service itself through other services", "endpoints that do not")
	case n.depth > MaxDepth:
		n.err = n.refuse("lead through "+strconv.Itoa(n.depth)+" services in a chain", "at most "+strconv.Itoa(MaxDepth))
	case !complete:
		n.err = n.refuse("lead to too many endpoints through other services",
			"at most "+strconv.Itoa(lb.MaxEndpointsPerService)+", and "+strconv.Itoa(maxPaths)+" paths to them")
	}
}

func (n *node) refuse(reason, allowed string) error {
	return lb.NewFieldError(lb.FieldEndpoints, n.service.Key.String(), reason, allowed)
}
