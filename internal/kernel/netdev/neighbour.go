package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/host/retry"
	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
)

const (
	// neighbourSlice and neighbourPause bound how fast neighbours are resolved: each may cause an
	// ARP broadcast.
	neighbourSlice = 512
	neighbourPause = 50 * time.Millisecond
	// neighbourCheck is the interval of comparing the neighbours in use with the kernel's table.
	neighbourCheck = 10 * time.Second
	// maxManaged bounds the next hops that the kernel keeps resolved: every 5 s it walks all of
	// them with bottom halves off. Other endpoints are resolved by their first packet.
	maxManaged = 16384
)

// neighbourPath is the route to an endpoint. Endpoints with the same route share it.
type neighbourPath struct {
	link  int        // outgoing interface, iff err is nil and local is false
	via   netip.Addr // the gateway; invalid: the endpoint itself is on the link
	local bool       // the endpoint is an address of this machine
	err   error      // the kernel's reason why there is no route
}

// hop returns the next hop to an endpoint with this path.
func (p *neighbourPath) hop(endpoint netip.Addr) mirror.Hop {
	if p.via.IsValid() {
		return mirror.Hop{Link: p.link, Via: p.via}
	}
	return mirror.Hop{Link: p.link, Via: endpoint}
}

// lost reports whether there is no route.
func (p *neighbourPath) lost() bool { return p != nil && p.err != nil }

// neighbourKernel is a *netlink.Conn.
type neighbourKernel interface {
	LookUp(ctx context.Context, hosts []netip.Addr, each func(i int, rt netlink.Route, err error)) error
	Batch(ctx context.Context, requests []*netlink.Request, done func(i int, answer []byte, err error)) error
	Close() error
}

// NeighbourKeeper keeps the next hops of endpoints resolved. Only the data path sends to them, not
// the kernel, so they would become stale and be removed. We make them managed neighbours
// (NTF_EXT_MANAGED), which the kernel resolves and confirms by itself, also after this process
// ended; NTF_EXT_LEARNED next to it keeps them out of the garbage collector's limits (1,024
// neighbours by default). The alternative, NTF_USE every few seconds, would end with the process.
// Only the kernel's own ARP requests and neighbour solicitations are sent.
type NeighbourKeeper struct {
	mirror  *mirror.Mirror
	changed func() // called when the result of Problems may have changed
	loop    *retry.Loop
	notify  chan struct{} // capacity 1: there is work

	mu           sync.Mutex
	paths        map[netip.Addr]*neighbourPath    // nil: not looked up yet
	shared       map[neighbourPath]*neighbourPath // the values of paths
	lookup       map[netip.Addr]struct{}          // endpoints to look up now
	stale        bool                             // routes changed: look all up again soon
	isConfigured bool                             // Set or Update was called: unused entries of ours may be removed
	retired      bool                             // next hops are no longer kept resolved
	lost         bool                             // RouteError has changed for an endpoint, unreported
	lostChanged  func()                           // called when it has; may be nil
	conn         neighbourKernel                  // of Run alone
}

// newNeighbourKeeper makes a keeper without endpoints. changed is called when the result of
// Problems may have changed.
func newNeighbourKeeper(ns *netlink.Namespace, m *mirror.Mirror, changed func(), log *slog.Logger) (*NeighbourKeeper, error) {
	conn, err := ns.Dial()
	if err != nil {
		return nil, err
	}
	return &NeighbourKeeper{
		mirror: m, changed: changed, conn: conn, loop: retry.New("next hops of endpoints are kept resolved", log),
		notify: make(chan struct{}, 1),
		paths:  map[netip.Addr]*neighbourPath{},
		shared: map[neighbourPath]*neighbourPath{},
		lookup: map[netip.Addr]struct{}{},
	}, nil
}

// Close closes the socket; the kernel continues.
func (k *NeighbourKeeper) Close() error {
	if k == nil {
		return nil
	}
	return k.conn.Close()
}

// Set sets the endpoints whose next hops are kept resolved. It returns immediately; Run does the
// work.
func (k *NeighbourKeeper) Set(endpoints iter.Seq[netip.Addr]) {
	wanted := map[netip.Addr]bool{}
	k.mu.Lock()
	for a := range k.paths {
		wanted[a] = false
	}
	k.mu.Unlock()
	for a := range endpoints {
		wanted[a] = true
	}
	k.Update(wanted)
}

// Update adds endpoints (true) and removes others (false). It returns immediately; Run does the
// work.
func (k *NeighbourKeeper) Update(changes map[netip.Addr]bool) {
	k.mu.Lock()
	for a, wanted := range changes {
		_, have := k.paths[a]
		switch {
		case wanted && !have && !k.retired:
			k.paths[a] = nil
			k.lookup[a] = struct{}{}
		case !wanted:
			delete(k.paths, a)
			delete(k.lookup, a)
		}
	}
	k.isConfigured = true
	k.mu.Unlock()
	k.Check()
}

// Retire stops keeping next hops resolved. Later calls of Set and Update have no effect.
func (k *NeighbourKeeper) Retire() {
	k.mu.Lock()
	k.retired = true
	clear(k.paths)
	clear(k.lookup)
	k.isConfigured = true
	k.mu.Unlock()
	k.Check()
}

// Invalidate reports that the routes to endpoints may have changed.
func (k *NeighbourKeeper) Invalidate() {
	k.mu.Lock()
	k.stale = true
	k.mu.Unlock()
	k.Check()
}

// Check reports that the kernel may no longer keep a next hop resolved.
func (k *NeighbourKeeper) Check() {
	select {
	case k.notify <- struct{}{}:
	default:
	}
}

// Run does the work until ctx ends. Looking up everything again, at about 3 us per endpoint, takes
// at most a twentieth of the time however fast routes change; new endpoints are looked up
// immediately. Failures are retried.
func (k *NeighbourKeeper) Run(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	var notBefore time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.notify:
		case <-again.C:
		}
		full := k.clearStale(notBefore)
		start := time.Now()
		err := k.update(ctx)
		if full {
			notBefore = time.Now().Add(max(200*time.Millisecond, 20*time.Since(start)))
		}
		k.changed()
		k.reportLost()
		wait := neighbourCheck
		if until := time.Until(notBefore); k.isStale() && until < wait {
			wait = max(until, 0)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = min(wait, k.loop.Failed(err))
		default:
			k.loop.Worked()
		}
		again.Reset(wait)
	}
}

// FollowRouteErrors sets the function that is called when RouteError has changed for an endpoint.
// It must be called before Run.
func (k *NeighbourKeeper) FollowRouteErrors(f func()) { k.lostChanged = f }

func (k *NeighbourKeeper) reportLost() {
	k.mu.Lock()
	report := k.lost && k.lostChanged != nil
	k.lost = false
	k.mu.Unlock()
	if report {
		k.lostChanged()
	}
}

// LastError returns the error that currently prevents next hops from being kept resolved, and since
// when; nil: none. It may concern only one next hop.
func (k *NeighbourKeeper) LastError() (since time.Time, err error) { return k.loop.LastError() }

func (k *NeighbourKeeper) isStale() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stale
}

func (k *NeighbourKeeper) clearStale(notBefore time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stale || time.Now().Before(notBefore) {
		return false
	}
	k.stale = false
	clear(k.shared) // gateways and links that are gone
	for a := range k.paths {
		k.lookup[a] = struct{}{}
	}
	return true
}

func (k *NeighbourKeeper) update(ctx context.Context) error {
	if err := k.findPaths(ctx); err != nil {
		return err
	}
	start, stop := k.difference()
	return errors.Join(k.manage(ctx, start, true), k.manage(ctx, stop, false))
}

// findPaths queries the kernel for the route to each waiting endpoint.
func (k *NeighbourKeeper) findPaths(ctx context.Context) error {
	k.mu.Lock()
	todo := slices.Collect(maps.Keys(k.lookup))
	k.mu.Unlock()
	for part := range slices.Chunk(todo, neighbourSlice) {
		k.mu.Lock()
		err := k.conn.LookUp(ctx, part, func(i int, rt netlink.Route, err error) {
			delete(k.lookup, part[i])
			if before, still := k.paths[part[i]]; still {
				path := k.share(neighbourPathOf(rt, err))
				k.lost = k.lost || path.lost() != before.lost()
				k.paths[part[i]] = path
			}
		})
		k.mu.Unlock()
		if err != nil {
			return err
		}
	}
	k.mu.Lock()
	if len(k.lookup) == 0 {
		k.lookup = map[netip.Addr]struct{}{} // a large map would keep its memory
	}
	k.mu.Unlock()
	return nil
}

// share returns an equal path that others use already. There is one for each gateway, link and
// error.
func (k *NeighbourKeeper) share(p neighbourPath) *neighbourPath {
	if p.err != nil && !errors.As(p.err, new(unix.Errno)) {
		return &p // errors of other types may not be compared
	}
	if k.shared[p] == nil {
		k.shared[p] = &p
	}
	return k.shared[p]
}

func neighbourPathOf(rt netlink.Route, err error) neighbourPath {
	switch {
	case err != nil:
		return neighbourPath{err: err}
	case rt.Kind == unix.RTN_LOCAL:
		return neighbourPath{local: true}
	case rt.Kind != unix.RTN_UNICAST:
		return neighbourPath{err: unix.EHOSTUNREACH}
	}
	return neighbourPath{link: rt.Link, via: rt.Gateway}
}

// difference returns the next hops that the kernel must start to manage, and those that it must
// stop managing.
func (k *NeighbourKeeper) difference() (start, stop []mirror.Hop) {
	k.mu.Lock()
	defer k.mu.Unlock()
	resolves := map[int]bool{}
	for _, l := range k.mirror.Links() {
		resolves[l.Index] = l.Resolves()
	}
	used := chooseNeighbours(func(yield func(mirror.Hop) bool) {
		for a, p := range k.paths {
			if p != nil && p.err == nil && !p.local && resolves[p.link] && !yield(p.hop(a)) {
				return
			}
		}
	}, maxManaged, func(h mirror.Hop) bool { return k.mirror.Neighbour(h).Managed })
	for h := range used {
		if n := k.mirror.Neighbour(h); !n.Permanent && !n.Managed {
			start = append(start, h)
		}
	}
	if !k.isConfigured {
		return start, nil
	}
	for _, h := range k.mirror.Managed() {
		if _, ok := used[h]; !ok {
			stop = append(stop, h)
		}
	}
	return start, stop
}

// chooseNeighbours returns up to limit of the hops: managed ones first, since each call would
// otherwise start and stop thousands.
func chooseNeighbours(hops iter.Seq[mirror.Hop], limit int, managed func(mirror.Hop) bool) map[mirror.Hop]struct{} {
	chosen := map[mirror.Hop]struct{}{}
	for h := range hops {
		if chosen[h] = struct{}{}; len(chosen) > limit {
			break
		}
	}
	if len(chosen) <= limit {
		return chosen
	}
	clear(chosen)
	for _, first := range []bool{true, false} {
		for h := range hops {
			if len(chosen) == limit {
				return chosen
			}
			if managed(h) == first {
				chosen[h] = struct{}{}
			}
		}
	}
	return chosen
}

// manage makes the kernel start (on) or stop keeping neighbours resolved.
func (k *NeighbourKeeper) manage(ctx context.Context, hops []mirror.Hop, on bool) error {
	var first error
	failures := 0
	for part := range slices.Chunk(hops, neighbourSlice) {
		requests := make([]*netlink.Request, len(part))
		for i, h := range part {
			requests[i] = neighbourRequest(h, on)
		}
		err := k.conn.Batch(ctx, requests, func(i int, _ []byte, err error) {
			if err == nil || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) {
				return
			}
			if failures++; first == nil {
				first = fmt.Errorf("neighbour %s on %s: %w", part[i].Via, k.mirror.Link(part[i].Link).Name, err)
			}
		})
		if err != nil {
			return err
		}
		if len(part) == neighbourSlice {
			if !monotime.Sleep(ctx, neighbourPause) {
				return ctx.Err()
			}
		}
	}
	if failures > 1 {
		return fmt.Errorf("%w; and %d more", first, failures-1)
	}
	return first
}

func neighbourRequest(h mirror.Hop, on bool) *netlink.Request {
	header := netlink.Header(netlink.Family(h.Via), unix.SizeofNdMsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(h.Link))
	header[10] = unix.NTF_USE // without the two flags below, the kernel clears them
	if on {
		header[10] |= unix.NTF_EXT_LEARNED
	}
	r := netlink.NewRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, header).Attr(unix.NDA_DST, h.Via.AsSlice())
	if on {
		r.Attr(netlink.NDAProtocol, []byte{netlink.OwnProtocol}).Attr32(netlink.NDAFlagsExt, netlink.NTFExtManaged)
	}
	return r
}

// Clear stops maintaining next hops. It must not be called while Run runs.
func (k *NeighbourKeeper) Clear(ctx context.Context) error {
	k.mu.Lock()
	clear(k.paths)
	clear(k.lookup)
	k.isConfigured = true
	k.mu.Unlock()
	if err := k.update(ctx); err != nil {
		return fmt.Errorf("stop maintaining neighbours: %w", err)
	}
	return nil
}
