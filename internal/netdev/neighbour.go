package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// warmSlice and warmPause bound how fast neighbours are asked for: each may become an ARP broadcast.
	warmSlice = 512
	warmPause = 50 * time.Millisecond
	// warmCheck is how often the neighbours in use are compared with the kernel's table.
	warmCheck = 10 * time.Second
	// maxWarm bounds the next hops that the kernel keeps resolved: every 5 s it walks all of them with bottom halves
	// off. Endpoints beyond are resolved by their first packet.
	maxWarm = 16384
)

// hop is where packets to an endpoint go first.
type hop struct {
	link int
	via  netip.Addr // the gateway, or the endpoint itself
}

// path is what is known of the way to an endpoint.
type path struct {
	hop   hop   // valid iff err is nil and local is false
	local bool  // the endpoint is an address of this machine
	err   error // why there is no way, from the kernel
	known bool  // looked up at all
}

// Warmer keeps the next hops of endpoints resolved. The kernel never sends to them, the data path does, so they would
// go stale and away. We make them managed neighbours (NTF_EXT_MANAGED), which the kernel resolves and confirms by
// itself, also after this process ended; NTF_EXT_LEARNED beside it keeps them out of the garbage collector's limits
// (1,024 neighbours by default). The road not taken, to poke neighbours (NTF_USE) every few seconds, ends with the
// process. No packet but the kernel's own ARP and neighbour solicitations is sent.
type Warmer struct {
	net    *Net
	notify chan struct{} // capacity 1: there is something to do

	mu     sync.Mutex
	paths  map[netip.Addr]path
	lookup map[netip.Addr]struct{} // endpoints to look up now
	stale  bool                    // routes changed: look all up again, soon
	spoken bool                    // Set was called: what is ours and unused may go
	route  *conn                   // of run alone
}

func newWarmer(n *Net) *Warmer {
	return &Warmer{
		net:    n,
		notify: make(chan struct{}, 1),
		paths:  map[netip.Addr]path{},
		lookup: map[netip.Addr]struct{}{},
	}
}

// Set makes these the endpoints whose next hops are kept resolved. It returns at once; Run does the work.
func (w *Warmer) Set(endpoints iter.Seq[netip.Addr]) {
	w.mu.Lock()
	next := make(map[netip.Addr]path, len(w.paths))
	for a := range endpoints {
		if _, twice := next[a]; twice {
			continue
		}
		next[a] = w.paths[a]
		if !next[a].known {
			w.lookup[a] = struct{}{}
		}
	}
	w.paths, w.spoken = next, true
	w.mu.Unlock()
	w.signal()
}

// wake says that the ways to endpoints may have changed.
func (w *Warmer) wake() {
	w.mu.Lock()
	w.stale = true
	w.mu.Unlock()
	w.signal()
}

func (w *Warmer) signal() {
	select {
	case w.notify <- struct{}{}:
	default:
	}
}

// run does the work until ctx ends. Looking everything up again, which costs about 3 us an endpoint, takes at most a
// twentieth of the time however fast routes change; new endpoints are looked up at once.
func (w *Warmer) run(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	var notBefore time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.notify:
		case <-again.C:
		}
		full := w.takeStale(notBefore)
		start := time.Now()
		err := w.work(ctx)
		if full {
			notBefore = time.Now().Add(max(200*time.Millisecond, 20*time.Since(start)))
		}
		if err != nil && ctx.Err() == nil {
			w.net.log.Warn("next hops of endpoints could not be kept resolved", "error", err)
		}
		w.net.diagnoseSoon()
		wait := warmCheck
		if until := time.Until(notBefore); w.isStale() && until < wait {
			wait = max(until, 0)
		}
		again.Reset(wait)
	}
}

func (w *Warmer) isStale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stale
}

func (w *Warmer) takeStale(notBefore time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stale || time.Now().Before(notBefore) {
		return false
	}
	w.stale = false
	for a := range w.paths {
		w.lookup[a] = struct{}{}
	}
	return true
}

func (w *Warmer) work(ctx context.Context) error {
	if err := w.findPaths(ctx); err != nil {
		return err
	}
	start, stop := w.difference()
	return errors.Join(w.manage(ctx, start, true), w.manage(ctx, stop, false))
}

// findPaths asks the kernel for the way to each endpoint that waits for it.
func (w *Warmer) findPaths(ctx context.Context) error {
	w.mu.Lock()
	todo := slices.Collect(maps.Keys(w.lookup))
	clear(w.lookup)
	w.mu.Unlock()
	for part := range slices.Chunk(todo, warmSlice) {
		if err := ctx.Err(); err != nil {
			return err
		}
		requests := make([]*request, len(part))
		for i, a := range part {
			requests[i] = routeTo(a)
		}
		w.mu.Lock()
		err := w.route.batch(requests, func(i int, answer []byte, err error) {
			if _, still := w.paths[part[i]]; still {
				w.paths[part[i]] = pathOf(part[i], answer, err)
			}
		})
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func pathOf(a netip.Addr, answer []byte, err error) path {
	if err != nil {
		return path{known: true, err: err}
	}
	rt, ok := parseRoute(answer)
	switch {
	case !ok:
		return path{known: true, err: errors.New("not a route to one host")}
	case rt.kind == unix.RTN_LOCAL:
		return path{known: true, local: true}
	case rt.kind != unix.RTN_UNICAST:
		return path{known: true, err: unix.EHOSTUNREACH}
	case rt.gateway.IsValid():
		return path{known: true, hop: hop{link: rt.oif, via: rt.gateway}}
	}
	return path{known: true, hop: hop{link: rt.oif, via: a}}
}

// difference says which next hops the kernel shall manage from now on, and which not any more.
func (w *Warmer) difference() (start, stop []hop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.net.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	used := map[hop]struct{}{}
	for _, p := range w.paths {
		if len(used) == maxWarm {
			break
		}
		if p.known && p.err == nil && !p.local && s.links[p.hop.link].resolves() {
			used[p.hop] = struct{}{}
		}
	}
	for h := range used {
		n := s.neighbours[neighbourKey{link: h.link, addr: h.via}]
		if n.state&unix.NUD_PERMANENT == 0 && !(n.managed && n.ours) {
			start = append(start, h)
		}
	}
	if !w.spoken {
		return start, nil
	}
	for key, n := range s.neighbours {
		h := hop{link: key.link, via: key.addr}
		if _, ok := used[h]; n.managed && n.ours && !ok {
			stop = append(stop, h)
		}
	}
	return start, stop
}

// manage has the kernel keep neighbours resolved, or leave them to themselves.
func (w *Warmer) manage(ctx context.Context, hops []hop, on bool) error {
	var failed []error
	for part := range slices.Chunk(hops, warmSlice) {
		requests := make([]*request, len(part))
		for i, h := range part {
			requests[i] = h.request(on)
		}
		err := w.route.batch(requests, func(_ int, _ []byte, err error) {
			if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENETDOWN) {
				failed = append(failed, err)
			}
		})
		if err != nil {
			return err
		}
		if len(part) == warmSlice {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(warmPause):
			}
		}
	}
	return firstOf(failed)
}

func (h hop) request(on bool) *request {
	header := familyHeader(familyOf(h.via), unix.SizeofNdMsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(h.link))
	header[10] = unix.NTF_USE // without the two flags below it takes them away
	if on {
		header[10] |= unix.NTF_EXT_LEARNED
	}
	r := newRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, header).attr(unix.NDA_DST, h.via.AsSlice())
	if on {
		r.attr(ndaProtocol, []byte{Owner}).attr32(ndaFlagsExt, ntfExtManaged)
	}
	return r
}
