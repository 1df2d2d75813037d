package netdev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// addressesOnLo bounds how many VIPs are addresses of lo; more become local routes to lo, which the kernel treats alike
// (it answers ARP and ping). An address costs the kernel a walk over all others of the link: 10,000 IPv6 addresses took
// 3.8 s and 10,000 more 15 s, where 65,536 local routes take under 2 s. What people look at (`ip address show lo`,
// routing daemons that redistribute addresses) is an address as long as that is cheap.
const addressesOnLo = 1024

// VIPs owns the VIPs that nobody else owns, so that the kernel answers for them: as /32 or /128 on lo and, where the
// kernel would not answer ARP or neighbour discovery for an address of lo, on the link of the connected network too.
//
// A VIP that is local without us is left alone. What is ours carries Owner in the kernel, stays when the process ends,
// and is found again by the next one. All methods may be called from any goroutine; the cost is in what changes.
type VIPs struct {
	net *Net

	mu     sync.Mutex
	route  *conn
	want   map[netip.Addr]struct{}
	failed map[netip.Addr]Problem // wanted ones that could not be placed
	doubt  bool                   // something failed as a whole: the next Set looks at everything
	have   map[netip.Addr][]place
	onLo   int         // places that are addresses of lo
	ignore map[int]int // arp_ignore by link, for the length of one settle
}

// place is where one of our VIPs is.
type place struct {
	link  int
	route bool // a local route instead of an address
}

func newVIPs(n *Net) *VIPs {
	return &VIPs{
		net:    n,
		want:   map[netip.Addr]struct{}{},
		failed: map[netip.Addr]Problem{},
		have:   map[netip.Addr][]place{},
	}
}

// Set makes these the VIPs: the ones of before, or of an earlier process, that are not among them are given up.
//
// A VIP that cannot be placed is no error but a problem that Diagnose tells, and is tried again: its service may well
// work without, as the data path sees packets before the kernel does. An error is about all of them.
func (v *VIPs) Set(ctx context.Context, vips []netip.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := make(map[netip.Addr]struct{}, len(vips))
	var added []netip.Addr
	for _, a := range vips {
		_, had := v.want[a]
		_, failed := v.failed[a]
		if !had || failed || v.doubt {
			added = append(added, a)
		}
		next[a] = struct{}{}
	}
	v.want, v.doubt = next, false
	maps.DeleteFunc(v.failed, func(a netip.Addr, _ Problem) bool { _, ok := next[a]; return !ok })
	var gone []netip.Addr
	for a := range v.have {
		if _, ok := next[a]; !ok {
			gone = append(gone, a)
		}
	}
	return errors.Join(v.giveUp(ctx, gone), v.settle(ctx, added))
}

// Add adds VIPs; one that is there already costs a look-up.
func (v *VIPs) Add(ctx context.Context, vips ...netip.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, a := range vips {
		v.want[a] = struct{}{}
	}
	return v.settle(ctx, vips)
}

// Remove gives VIPs up, when the last service that uses them is gone.
func (v *VIPs) Remove(ctx context.Context, vips ...netip.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, a := range vips {
		delete(v.want, a)
		delete(v.failed, a)
	}
	return v.giveUp(ctx, vips)
}

// Owned returns the VIPs that are in the kernel by us, in order.
func (v *VIPs) Owned() []netip.Addr {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.SortedFunc(maps.Keys(v.have), netip.Addr.Compare)
}

// moved looks again at what the watch found: addresses that came or went and, if places, all that depends on links.
func (v *VIPs) moved(ctx context.Context, c change) {
	v.mu.Lock()
	defer v.mu.Unlock()
	again := c.addresses
	if c.places {
		again = slices.Collect(maps.Keys(v.want))
	}
	var look, back []netip.Addr
	for _, a := range again {
		if _, ok := v.want[a]; ok {
			look = append(look, a)
		}
	}
	if c.loopback {
		back = slices.Collect(maps.Keys(v.have))
	} else {
		back = slices.DeleteFunc(slices.Clone(c.addresses), func(a netip.Addr) bool { return v.have[a] == nil })
	}
	err := errors.Join(v.restore(ctx, back), v.settle(ctx, look))
	if err != nil && ctx.Err() == nil {
		v.net.log.Error("VIPs could not follow a change of the network", "error", err)
	}
}

// others returns those of the addresses that are VIPs and not ours.
func (v *VIPs) others(list []netip.Addr) []netip.Addr {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []netip.Addr
	for _, a := range list {
		if _, wanted := v.want[a]; wanted && v.have[a] == nil {
			out = append(out, a)
		}
	}
	return out
}

// settle puts each VIP where it belongs and takes it from where it does not belong any more.
func (v *VIPs) settle(ctx context.Context, vips []netip.Addr) error {
	if len(vips) == 0 {
		return nil
	}
	for _, a := range vips {
		delete(v.failed, a)
	}
	err := v.trySettle(ctx, vips)
	v.doubt = v.doubt || err != nil
	v.net.diagnoseSoon()
	return err
}

func (v *VIPs) trySettle(ctx context.Context, vips []netip.Addr) error {
	lo, err := v.loopback()
	if err != nil {
		return err
	}
	v.ignore = map[int]int{}
	var steps, undo []step
	var unknown []netip.Addr
	for _, a := range vips {
		wanted := v.besides(a)
		for _, p := range v.have[a] {
			if p.link != lo.Index && !slices.Contains(wanted, p.link) {
				undo = append(undo, step{addr: a, place: p})
			}
		}
		if !slices.ContainsFunc(v.have[a], func(p place) bool { return p.link == lo.Index }) {
			unknown = append(unknown, a)
		}
		for _, link := range wanted {
			if !slices.Contains(v.have[a], place{link: link}) {
				steps = append(steps, step{addr: a, place: place{link: link}})
			}
		}
	}
	orphans, err := v.nobodys(ctx, unknown)
	if err != nil {
		return err
	}
	for i, a := range orphans {
		steps = append(steps, step{addr: a, place: place{link: lo.Index, route: v.onLo+i >= addressesOnLo}})
	}
	return errors.Join(v.takeAway(ctx, undo), v.put(ctx, steps))
}

// besides returns the links, other than lo, that must have the VIP as an address for its network to find it. IPv6
// neighbour discovery answers only for addresses of the link that was asked, or, by proxy entries, when that link
// forwards. ARP answers for any local address unless arp_ignore says otherwise.
func (v *VIPs) besides(a netip.Addr) []int {
	s := v.net.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []int
	for _, l := range s.onLink(a) {
		if !l.Up || l.Loopback() || (a.Is4() && !v.ignoresOthers(l)) {
			continue
		}
		foreign := slices.ContainsFunc(s.addresses[a], func(have address) bool { return have.link == l.Index && !have.ours })
		if !foreign {
			out = append(out, l.Index)
		}
	}
	return out
}

// ignoresOthers says whether the link answers ARP only for its own addresses. 3 and 8 do not answer for a VIP wherever
// it is: Diagnose says so.
func (v *VIPs) ignoresOthers(l Link) bool {
	mode, ok := v.ignore[l.Index]
	if !ok {
		mode = v.net.arpIgnore(l)
		v.ignore[l.Index] = mode
	}
	return mode == 1 || mode == 2
}

// loopback returns lo, set up.
func (v *VIPs) loopback() (Link, error) {
	for _, l := range v.net.Links() {
		if !l.Loopback() {
			continue
		}
		if !l.Up {
			if err := v.setUp(l); err != nil {
				return l, fmt.Errorf("set %s up: %w", l.Name, err)
			}
		}
		return l, nil
	}
	return Link{}, errors.New("this network namespace has no loopback interface")
}

// nobodys returns the VIPs that are not local to this namespace: the kernel's own answer, not our copy of its tables,
// which may be a moment behind.
func (v *VIPs) nobodys(ctx context.Context, vips []netip.Addr) ([]netip.Addr, error) {
	requests := make([]*request, len(vips))
	for i, a := range vips {
		requests[i] = routeTo(a)
	}
	var out []netip.Addr
	err := v.send(ctx, requests, func(i int, answer []byte, err error) {
		rt, ok := parseRoute(answer)
		if err != nil || !ok || rt.kind != unix.RTN_LOCAL {
			out = append(out, vips[i])
		}
	})
	return out, err
}

func (v *VIPs) giveUp(ctx context.Context, vips []netip.Addr) error {
	var steps []step
	for _, a := range vips {
		for _, p := range v.have[a] {
			steps = append(steps, step{addr: a, place: p})
		}
	}
	return v.takeAway(ctx, steps)
}

// restore puts back what others took from us. What went with its link is forgotten: settle says where it belongs now.
func (v *VIPs) restore(ctx context.Context, vips []netip.Addr) error {
	var steps []step
	for _, a := range vips {
		for _, p := range slices.Clone(v.have[a]) {
			s := step{addr: a, place: p}
			if l := v.net.link(p.link); l.Loopback() || v.net.state.holds(s) {
				steps = append(steps, s)
			} else {
				v.drop(s)
			}
		}
	}
	return v.put(ctx, steps)
}
