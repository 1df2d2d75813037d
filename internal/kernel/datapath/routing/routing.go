// Package routing writes facts about the machine's network that the packet path cannot query: the
// kinds of interfaces, the default routes, the generations that expire cached next hops, and the
// leases of VIPs.
//
// All methods are idempotent and cost nothing without a change. The caller retries failures.
package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

const (
	linkPeer   = uint32(bpf.TcLinkFlagLINK_PEER)
	linkLayer3 = uint32(bpf.TcLinkFlagLINK_LAYER3)
	linkBridge = uint32(bpf.TcLinkFlagLINK_BRIDGE)
	linkPort   = uint32(bpf.TcLinkFlagLINK_BRIDGE_PORT)
	linkQueues = uint32(bpf.TcLinkFlagLINK_QUEUES)
)

// DefaultRoute is a next hop of a default route.
type DefaultRoute struct {
	Gateway   netip.Addr // invalid: none, the route is on-link
	Interface int        // index
}

// Routing is the written state. Methods are safe for concurrent use.
type Routing struct {
	links, routes *ebpf.Map
	shared, full  *ebpf.Variable

	mu       sync.Mutex
	epochs   *epochs
	defaults map[bpf.TcDefaultRoute]uint8
	kinds    map[uint32]uint32 // of interfaces, by index, as this process has written them
	sharing  uint32            // as written last
}

// Open reads the state of an earlier process, and begins a later generation of next hops:
// connections may have cached theirs in its time.
func Open(c *loader.Collection) (*Routing, error) {
	epochs, err := newEpochs(c)
	if err != nil {
		return nil, err
	}
	r := &Routing{
		links: c.Maps.Links, routes: c.Maps.DefaultRoutes, shared: c.Variables.NextHopsShared,
		full: c.Variables.WaysFull, epochs: epochs, kinds: map[uint32]uint32{},
	}
	if err := r.shared.Get(&r.sharing); err != nil {
		return nil, fmt.Errorf("read whether next hops are shared: %w", err)
	}
	r.defaults, err = rows.Read[bpf.TcDefaultRoute, uint8](r.routes)
	if err != nil {
		return nil, fmt.Errorf("read default routes: %w", err)
	}
	return r, r.BumpNextHops()
}

// Link is the kind of next hop of an interface.
type Link struct {
	Peer       bool // a veth whose other end is in another network namespace
	Layer3     bool // without link-layer header
	Bridge     bool
	BridgePort bool // its frames may be for other hosts behind the bridge
	Queues     bool // of a Peer: packets may be queued at it instead, since no program at its egress would see them
}

// SetLink sets the kind of an interface, attached or not. If the kind changes, every connection
// resolves its next hop again, since cached next hops have the former kind.
func (r *Routing) SetLink(index int, l Link) error {
	var flags uint32
	if l.Peer {
		flags |= linkPeer
	}
	if l.Layer3 {
		flags |= linkLayer3
	}
	if l.Bridge {
		flags |= linkBridge
	}
	if l.BridgePort {
		flags |= linkPort
	}
	if l.Queues {
		flags |= linkQueues
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var before uint32
	err := r.links.Lookup(uint32(index), &before)
	changed := err == nil && before != flags
	if err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
		err = r.links.Put(uint32(index), flags)
	}
	if err != nil {
		return fmt.Errorf("describe interface %d: %w", index, err)
	}
	r.kinds[uint32(index)] = flags
	if changed {
		return r.bumpNextHops()
	}
	return nil
}

// ForgetLink undoes SetLink. An unknown index is no error.
func (r *Routing) ForgetLink(index int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := rows.Delete(r.links, uint32(index)); err != nil {
		return fmt.Errorf("forget interface %d: %w", index, err)
	}
	delete(r.kinds, uint32(index))
	return nil
}

// ForgetOtherLinks undoes SetLink, by any process, for all interfaces except those to keep.
func (r *Routing) ForgetOtherLinks(keep func(index int) bool) error {
	var gone []int
	err := rows.Each(r.links, func(index, _ uint32) {
		if !keep(int(index)) {
			gone = append(gone, int(index))
		}
	})
	if err != nil {
		return fmt.Errorf("read interfaces: %w", err)
	}
	var errs []error
	for _, index := range gone {
		errs = append(errs, r.ForgetLink(index))
	}
	return errors.Join(errs...)
}

// BumpNextHops makes every connection resolve its next hop again with its next packet: a route, a
// rule, an address or a link has changed.
func (r *Routing) BumpNextHops() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bumpNextHops()
}

func (r *Routing) bumpNextHops() error {
	r.epochs.routes++
	r.epochs.neighbours++
	return r.epochs.write()
}

// BumpNeighbours makes every next hop resolve its MAC address again with its next packet, after a
// neighbour's has changed.
func (r *Routing) BumpNeighbours() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epochs.neighbours++
	return r.epochs.write()
}

// Generations returns the current generations of routes and of neighbours.
func (r *Routing) Generations() (routes, neighbours uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epochs.routes, r.epochs.neighbours
}

// Follow writes the generations to variables of another object too, now and at each bump.
func (r *Routing) Follow(routes, neighbours *ebpf.Variable) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epochs.written = append(r.epochs.written, generations{routes, neighbours})
	return r.epochs.write()
}

// ShareNextHops sets whether all packets to an address take the same route. If so, a new connection
// uses the cached next hop of another one, without a lookup. Call BumpNextHops after it.
func (r *Routing) ShareNextHops(shared bool) error {
	var value uint32
	if shared {
		value = 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.shared.Set(value); err != nil {
		return fmt.Errorf("share next hops: %w", err)
	}
	r.sharing = value
	return nil
}

// NextHopsFull counts the packets whose next hop found no room in the table, so each needs a
// lookup.
func (r *Routing) NextHopsFull() (sum uint64, err error) {
	if err := r.full.Get(&sum); err != nil {
		return 0, fmt.Errorf("read packets without a row for their next hop: %w", err)
	}
	return sum, nil
}

// SetDefaultRoutes sets the routes on which connections of --egress services are translated. Only
// differences are written. A failed write is retried by the next call.
func (r *Routing) SetDefaultRoutes(list []DefaultRoute) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := make(map[bpf.TcDefaultRoute]uint8, len(list))
	for _, d := range list {
		key := bpf.TcDefaultRoute{Ifindex: uint32(d.Interface)}
		if d.Gateway.IsValid() {
			key.Gateway = bpf.Addr(d.Gateway)
		}
		want[key] = 1
	}
	if _, err := rows.Sync(r.routes, r.defaults, want); err != nil {
		return fmt.Errorf("write default routes: %w", err)
	}
	return nil
}
