package netdev

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
)

// addressesOnLo is the maximum number of VIPs that are addresses of lo. Further VIPs become local
// routes to lo, which the kernel treats alike (it answers ARP and ping). Adding an address walks
// over all others of the link: 10,000 IPv6 addresses took 3.8 s and 10,000 more 15 s, where 65,536
// local routes take under 2 s. Users (`ip address show lo`) and routing daemons that redistribute
// addresses see only addresses, so the first VIPs are addresses.
const addressesOnLo = 1024

// VIPOwner adds VIPs to the kernel: as /32 or /128 on lo and, where the kernel would not answer ARP
// or neighbour discovery for an address of lo, on the link of the connected network too.
//
// It leaves VIPs alone that are already local. Addresses that it adds carry OwnProtocol in the
// kernel, stay when the process ends, and are adopted by the next process. All methods are safe for
// concurrent use. Their cost grows with the number of changes.
type VIPOwner struct {
	mirror   *mirror.Mirror
	settings Settings
	changed  func() // called when the result of Problems may have changed

	mu               sync.Mutex
	retired          error // why no VIP is placed any longer; nil: VIPs are placed
	conn             vipKernel
	wanted           map[netip.Addr]struct{}
	failed           map[netip.Addr]error // VIPs that could not be placed
	locations        map[netip.Addr][]location
	loAddresses      int            // places that are addresses of lo
	arpIgnore        map[string]int // arp_ignore by link, while VIPs are placed
	checkedARPIgnore map[string]int // arp_ignore by link at the last check
}

// vipKernel is the interface to the kernel: a *netlink.Conn.
type vipKernel interface {
	LookUp(ctx context.Context, hosts []netip.Addr, each func(i int, rt netlink.Route, err error)) error
	Batch(ctx context.Context, requests []*netlink.Request, done func(i int, answer []byte, err error)) error
	One(*netlink.Request) (answer []byte, err error)
	Dump(typ uint16, header []byte, each func(netlink.Message)) error
	Close() error
}

// location is the link, and the kind, of a VIP that loxilb has added.
type location struct {
	link  int
	route bool // a local route instead of an address
}

// newVIPOwner finds the VIPs of an earlier process. It calls changed when the result of Problems
// may have changed.
func newVIPOwner(ns *netlink.Namespace, m *mirror.Mirror, settings Settings, changed func()) (*VIPOwner, error) {
	conn, err := ns.Dial()
	if err != nil {
		return nil, err
	}
	o := &VIPOwner{
		mirror: m, settings: settings, changed: changed, conn: conn,
		wanted: map[netip.Addr]struct{}{}, failed: map[netip.Addr]error{}, locations: map[netip.Addr][]location{},
	}
	if err := o.adopt(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return o, nil
}

// Close closes the socket; the VIPs stay.
func (o *VIPOwner) Close() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conn.Close()
}

// Set sets the VIPs, and releases all others, including those of an earlier process. It returns the
// failed VIPs with their errors. A failed VIP is retried, also by the next Set or Add. Its service
// may still work: the data path sees packets before the kernel does.
func (o *VIPOwner) Set(ctx context.Context, vips []netip.Addr) map[netip.Addr]error {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := make(map[netip.Addr]struct{}, len(vips))
	var added []netip.Addr
	for _, a := range vips {
		_, had := o.wanted[a]
		if _, failed := o.failed[a]; !had || failed {
			added = append(added, a)
		}
		next[a] = struct{}{}
	}
	o.wanted = next
	maps.DeleteFunc(o.failed, func(a netip.Addr, _ error) bool { _, ok := next[a]; return !ok })
	var gone []netip.Addr
	for a := range o.locations {
		if _, ok := next[a]; !ok {
			gone = append(gone, a)
		}
	}
	return merged(o.release(ctx, gone), o.placeAll(ctx, added))
}

// Add adds VIPs; an existing one costs a lookup. It returns the failed ones like Set.
func (o *VIPOwner) Add(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range vips {
		o.wanted[a] = struct{}{}
	}
	return o.placeAll(ctx, vips)
}

// Remove removes VIPs that no service uses any longer. It returns those that it failed to remove,
// with their errors.
func (o *VIPOwner) Remove(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range vips {
		delete(o.wanted, a)
		delete(o.failed, a)
	}
	return o.release(ctx, vips)
}

// Retire removes all VIPs. Later calls of Set and Add fail with the error why.
func (o *VIPOwner) Retire(ctx context.Context, why error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retired = why
	clear(o.wanted)
	clear(o.failed)
	return errors.Join(slices.Collect(maps.Values(o.release(ctx, slices.Collect(maps.Keys(o.locations)))))...)
}

// Owned returns the VIPs that loxilb has added to the kernel, in order.
func (o *VIPOwner) Owned() []netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Keys(o.locations), netip.Addr.Compare)
}

func merged(a, b map[netip.Addr]error) map[netip.Addr]error {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

// placeAll adds each VIP to its links, and removes it from other links.
func (o *VIPOwner) placeAll(ctx context.Context, vips []netip.Addr) map[netip.Addr]error {
	if len(vips) == 0 {
		return nil
	}
	for _, a := range vips {
		delete(o.failed, a)
	}
	err := o.retired
	if err == nil {
		err = o.tryPlaceAll(ctx, vips)
	}
	if err != nil {
		for _, a := range vips { // any of them may have failed
			o.failed[a] = err
		}
	}
	o.changed()
	var failed map[netip.Addr]error
	for _, a := range vips {
		if err, ok := o.failed[a]; ok {
			failed = merged(failed, map[netip.Addr]error{a: err})
		}
	}
	return failed
}

// tryPlaceAll adds errors of one VIP to failed, and returns an error that concerns all VIPs.
func (o *VIPOwner) tryPlaceAll(ctx context.Context, vips []netip.Addr) error {
	lo, err := o.loopback()
	if err != nil {
		return err
	}
	o.arpIgnore = map[string]int{}
	var steps, undo []vipPlacement
	var unknown []netip.Addr
	for _, a := range vips {
		wanted := o.linksToAnswer(a)
		for _, p := range o.locations[a] {
			if p.link != lo.Index && !slices.Contains(wanted, p.link) {
				undo = append(undo, vipPlacement{addr: a, location: p})
			}
		}
		if !slices.ContainsFunc(o.locations[a], func(p location) bool { return p.link == lo.Index }) {
			unknown = append(unknown, a)
		}
		for _, link := range wanted {
			if !slices.Contains(o.locations[a], location{link: link}) {
				steps = append(steps, vipPlacement{addr: a, location: location{link: link}})
			}
		}
	}
	orphans, err := o.notLocal(ctx, unknown)
	if err != nil {
		return err
	}
	for i, a := range orphans {
		steps = append(steps, vipPlacement{addr: a, location: location{link: lo.Index, route: o.loAddresses+i >= addressesOnLo}})
	}
	return errors.Join(o.removeAll(ctx, undo, o.failed), o.addAll(ctx, steps))
}

// linksToAnswer returns the links, other than lo, that must have the VIP as an address to answer
// ARP or neighbour discovery for it. IPv6 neighbour discovery answers only for addresses of the
// queried link, or by proxy entries when that link forwards. ARP answers for any local address
// unless arp_ignore forbids it.
func (o *VIPOwner) linksToAnswer(a netip.Addr) []int {
	var out []int
	for _, l := range o.mirror.OnLink(a) {
		if !l.Up || l.Loopback() || (a.Is4() && !o.answersOnlyOwn(l.Name)) {
			continue
		}
		if !o.mirror.Foreign(a, l.Index) {
			out = append(out, l.Index)
		}
	}
	return out
}

// answersOnlyOwn reports whether the link answers ARP only for its own addresses. With the
// modes 3 and 8, the link never answers for VIPs, which Problems reports.
func (o *VIPOwner) answersOnlyOwn(link string) bool {
	mode, ok := o.arpIgnore[link]
	if !ok {
		mode = o.settings.ARPIgnore(link)
		o.arpIgnore[link] = mode
	}
	return mode == 1 || mode == 2
}

// notLocal returns the VIPs that are not local to this namespace. It queries the kernel, since the
// mirror may lag behind.
func (o *VIPOwner) notLocal(ctx context.Context, vips []netip.Addr) ([]netip.Addr, error) {
	var out []netip.Addr
	err := o.conn.LookUp(ctx, vips, func(i int, rt netlink.Route, err error) {
		if err != nil || rt.Kind != unix.RTN_LOCAL {
			out = append(out, vips[i])
		}
	})
	return out, err
}

// release removes VIPs from the kernel. It returns those that it failed to remove, with their
// errors.
func (o *VIPOwner) release(ctx context.Context, vips []netip.Addr) map[netip.Addr]error {
	var steps []vipPlacement
	for _, a := range vips {
		for _, p := range o.locations[a] {
			steps = append(steps, vipPlacement{addr: a, location: p})
		}
	}
	if len(steps) == 0 {
		return nil
	}
	failed := map[netip.Addr]error{}
	if err := o.removeAll(ctx, steps, failed); err != nil {
		for _, a := range vips {
			if o.locations[a] != nil {
				failed[a] = err
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// adopt finds the VIPs of an earlier process: addresses that the mirror has read, and local routes.
func (o *VIPOwner) adopt() error {
	for a, link := range o.mirror.Ours() {
		o.locations[a] = append(o.locations[a], location{link: link})
	}
	for _, places := range o.locations { // after Ours, which holds the mirror's lock
		for _, p := range places {
			if o.isLoAddress(p) {
				o.loAddresses++
			}
		}
	}
	o.mirror.ReserveRoutes(slices.Collect(maps.Keys(o.locations)), 0)
	return o.adoptRoutes()
}

// Follow moves VIPs to their links after a change of the network.
func (o *VIPOwner) Follow(ctx context.Context, c mirror.Change) {
	if len(c.Addresses) == 0 && !c.Places && !c.Loopback {
		return
	}
	o.mu.Lock()
	o.follow(ctx, c)
	o.mu.Unlock()
	o.recheck(ctx, c.Addresses, 0)
}

func (o *VIPOwner) follow(ctx context.Context, c mirror.Change) {
	look := make([]netip.Addr, 0, len(c.Addresses))
	if c.Places {
		look = slices.AppendSeq(look, maps.Keys(o.wanted))
	} else {
		for _, a := range c.Addresses {
			if _, ok := o.wanted[a]; ok {
				look = append(look, a)
			}
		}
	}
	var back []netip.Addr
	if c.Loopback {
		back = slices.Collect(maps.Keys(o.locations))
	} else {
		back = slices.DeleteFunc(slices.Clone(c.Addresses), func(a netip.Addr) bool { return o.locations[a] == nil })
	}
	if err := o.restore(ctx, back); err != nil && ctx.Err() == nil {
		for _, a := range back {
			if _, ok := o.wanted[a]; ok {
				o.failed[a] = err
			}
		}
	}
	o.placeAll(ctx, look)
}

// restore adds addresses again that other programs have removed. It forgets addresses that
// disappeared with their link: place then finds another link for them.
func (o *VIPOwner) restore(ctx context.Context, vips []netip.Addr) error {
	if o.retired != nil {
		return nil
	}
	var steps []vipPlacement
	for _, a := range vips {
		for _, p := range slices.Clone(o.locations[a]) {
			s := vipPlacement{addr: a, location: p}
			if o.mirror.Link(p.link).Loopback() || o.mirror.CanRestore(a, p.link) {
				steps = append(steps, s)
			} else {
				o.forgetLocation(s)
			}
		}
	}
	return o.addAll(ctx, steps)
}

// recheck checks VIPs of apparent other owners again, three times within a second: the kernel
// reports the removal of an address before it removes the local route, and still answers route
// requests with that route.
func (o *VIPOwner) recheck(ctx context.Context, vips []netip.Addr, checks int) {
	others := o.ownedByOthers(vips)
	if len(others) == 0 || checks == 3 {
		return
	}
	time.AfterFunc(30*time.Millisecond<<(2*checks), func() {
		if ctx.Err() != nil {
			return
		}
		o.mu.Lock()
		o.follow(ctx, mirror.Change{Addresses: others})
		o.mu.Unlock()
		o.recheck(ctx, others, checks+1)
	})
}

// ownedByOthers returns the addresses that are VIPs of another owner.
func (o *VIPOwner) ownedByOthers(list []netip.Addr) []netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []netip.Addr
	for _, a := range list {
		if _, wanted := o.wanted[a]; wanted && o.locations[a] == nil {
			out = append(out, a)
		}
	}
	return out
}

// Retry retries failed VIPs, and places all VIPs again if arp_ignore of a link has changed, which
// the kernel does not report.
func (o *VIPOwner) Retry(ctx context.Context) {
	now := o.arpIgnoreByLink()
	o.mu.Lock()
	defer o.mu.Unlock()
	c := mirror.Change{
		Addresses: slices.Collect(maps.Keys(o.failed)),
		Places:    o.checkedARPIgnore != nil && !maps.Equal(o.checkedARPIgnore, now),
	}
	o.checkedARPIgnore = now
	if !c.Empty() {
		o.follow(ctx, c)
	}
}

// arpIgnoreByLink returns the arp_ignore of every link with a connected IPv4 network.
func (o *VIPOwner) arpIgnoreByLink() map[string]int {
	out := map[string]int{}
	for _, l := range o.mirror.IPv4Links() {
		out[l.Name] = o.settings.ARPIgnore(l.Name)
	}
	return out
}
