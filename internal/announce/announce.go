// Package announce announces the MAC address of a VIP to a link's neighbours, by gratuitous ARP and
// unsolicited neighbour advertisements, when the VIP is new or the link comes up. Neighbours that
// knew the VIP by another MAC address, such as that of another load balancer, learn the new one at
// once instead of after a minute.
package announce

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/event"
	"loxilb/internal/host/retry"
	"loxilb/internal/kernel/netdev"
)

const (
	// burst and pause bound the rate of frames: about 6,000 per second, for all links together.
	burst = 64
	pause = 10 * time.Millisecond
	// minCheckInterval is the least time between two checks of all VIPs. A check compares each VIP
	// with the connected networks.
	minCheckInterval = 200 * time.Millisecond
)

// Network finds the links of VIPs. *netdev.Net implements it.
type Network interface {
	OnLink(netip.Addr) []netdev.Link
	// AnsweringLinks returns the links, by index, that answer ARP for a VIP; none: all do.
	AnsweringLinks(netip.Addr) []int
	Do(func() error) error
}

// Answers limits the links that answer ARP for a VIP. *leases.Leases implements it.
type Answers interface {
	// SetLinks sets the links, by index; none: all answer.
	SetLinks(vip netip.Addr, links []int) error
	// KeepLinks makes all links answer for all VIPs except these.
	KeepLinks(keep func(netip.Addr) bool) error
}

// Owner adds VIPs to the kernel. *netdev.VIPOwner implements it. All methods are idempotent, and
// return the VIPs that failed.
type Owner interface {
	Set(ctx context.Context, vips []netip.Addr) map[netip.Addr]error
	Add(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error
	Remove(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error
}

// Announcer is an Owner that passes VIPs to another Owner, and announces them. A VIP is announced
// on every link whose connected network contains it, never on lo, several times each: a frame may
// get lost, and a switch that just brought its port up drops the first.
type Announcer struct {
	owner   Owner
	network Network
	answers Answers
	loop    *retry.Loop
	delays  []time.Duration // from the first announcement; ascending
	notify  chan struct{}   // capacity 1

	duplicates *Duplicates // nil: no search for other owners

	mu        sync.Mutex
	vips      map[netip.Addr]struct{}
	unchecked map[netip.Addr]struct{} // new VIPs
	checkAll  bool                    // all VIPs must be checked
	announced map[vipLink]string      // MAC under which a VIP was announced, or is about to be
}

// vipLink is a VIP on a link.
type vipLink struct {
	vip  netip.Addr
	link int
}

// pendingAnnouncement is a frame to be sent.
type pendingAnnouncement struct {
	vipLink
	mac string
	due time.Time
}

// New returns an announcer that announces each VIP times times.
func New(n Network, o Owner, answers Answers, times int, log *slog.Logger) *Announcer {
	return &Announcer{
		owner: o, network: n, answers: answers, loop: retry.New("VIPs are announced to the neighbours of their links", log),
		delays:    delays(times),
		notify:    make(chan struct{}, 1),
		vips:      map[netip.Addr]struct{}{},
		unchecked: map[netip.Addr]struct{}{},
		announced: map[vipLink]string{},
	}
}

// delays returns when a VIP is announced: at once, after 1 s, after 3 s, and then every 2 s.
func delays(times int) []time.Duration {
	list := make([]time.Duration, times)
	for i := 1; i < times; i++ {
		list[i] = time.Duration(2*i-1) * time.Second
	}
	return list
}

// Set passes the VIPs to their owner and announces new ones. A VIP that its owner could not add is
// also announced, since the data path answers for it.
func (a *Announcer) Set(ctx context.Context, vips []netip.Addr) map[netip.Addr]error {
	failed := a.owner.Set(ctx, vips)
	a.mu.Lock()
	next := make(map[netip.Addr]struct{}, len(vips))
	for _, vip := range vips {
		next[vip] = struct{}{}
		a.add(vip)
	}
	a.vips, a.checkAll = next, true // a check of all VIPs forgets removed ones
	a.mu.Unlock()
	a.signal()
	return failed
}

// Add passes the VIPs to their owner and announces new ones.
func (a *Announcer) Add(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	failed := a.owner.Add(ctx, vips...)
	a.mu.Lock()
	for _, vip := range vips {
		a.add(vip)
	}
	fresh := len(a.unchecked) > 0
	a.mu.Unlock()
	if fresh {
		a.signal()
	}
	return failed
}

// Remove makes the owner release the VIPs; pending announcements are dropped.
func (a *Announcer) Remove(ctx context.Context, vips ...netip.Addr) map[netip.Addr]error {
	a.forgetVIPs(vips)
	failed := a.owner.Remove(ctx, vips...)
	a.clearLinks(vips)
	return failed
}

// clearLinks makes all links answer for VIPs, unless they were added again. The next check of all
// VIPs retries after an error.
func (a *Announcer) clearLinks(vips []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, vip := range vips {
		if _, again := a.vips[vip]; !again && a.answers.SetLinks(vip, nil) != nil {
			a.checkAll = true
		}
	}
}

// forgetVIPs forgets VIPs and their announcements. If networks have changed, the next check of all
// VIPs does so instead.
func (a *Announcer) forgetVIPs(vips []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, vip := range vips {
		delete(a.vips, vip)
		delete(a.unchecked, vip)
		for _, l := range a.network.OnLink(vip) {
			delete(a.announced, vipLink{vip, l.Index})
		}
	}
}

// Invalidate reports that links or networks may have changed.
func (a *Announcer) Invalidate() {
	a.mu.Lock()
	a.checkAll = true
	a.mu.Unlock()
	a.signal()
}

// Repeat announces all VIPs again: another node may have announced them since.
func (a *Announcer) Repeat() {
	a.mu.Lock()
	clear(a.announced)
	a.mu.Unlock()
	a.Invalidate()
}

// add adds a VIP. If it is in no connected network, it has no neighbours to notify; if that
// changes, all VIPs are checked.
func (a *Announcer) add(vip netip.Addr) {
	if _, had := a.vips[vip]; had {
		return
	}
	a.vips[vip] = struct{}{}
	if len(a.network.OnLink(vip)) > 0 {
		a.unchecked[vip] = struct{}{}
	}
}

func (a *Announcer) signal() {
	select {
	case a.notify <- struct{}{}:
	default:
	}
}

// Run announces until ctx ends, and checks again when the hub reports changes of links, addresses
// or routes. Failures are retried.
func (a *Announcer) Run(ctx context.Context, hub *event.Hub) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { a.follow(ctx, hub) })
	socket := &socket{network: a.network, fd: -1}
	defer socket.close()
	// The delays are constant, so the announcements of each round are in order of their time.
	rounds := make([][]pendingAnnouncement, len(a.delays))
	var lastLook, retryAt time.Time
	retrying := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.notify:
		case <-timer.C:
		}
		now := time.Now()
		if !retryAt.IsZero() && !now.Before(retryAt) {
			a.Invalidate()
			retryAt, retrying = time.Time{}, true
		}
		all := now.Sub(lastLook) >= minCheckInterval
		if all {
			lastLook = now
		}
		found, linksErr := a.findPending(now, all)
		rounds[0] = append(rounds[0], found...)
		next, err := a.sendDue(ctx, socket, rounds)
		err = errors.Join(linksErr, err)
		switch {
		case err != nil:
			retryAt, retrying = now.Add(a.loop.Failed(err)), false
		case retrying && !a.hasBacklog() && len(rounds[0]) == 0: // all failed announcements were sent
			retrying = false
			a.loop.Worked()
		}
		if a.hasBacklog() {
			next = min(next, minCheckInterval)
		}
		if !retryAt.IsZero() {
			next = min(next, max(0, time.Until(retryAt)))
		}
		timer.Reset(next)
	}
}

// follow calls Invalidate for each event that may change where VIPs are to be announced.
func (a *Announcer) follow(ctx context.Context, hub *event.Hub) {
	changes := hub.Subscribe(event.KindLink, event.KindAddress, event.KindRoute)
	for {
		if _, _, err := changes.Next(ctx); err != nil {
			return
		}
		a.Invalidate()
	}
}

// LastError returns what currently prevents announcements, and since when; nil: nothing.
func (a *Announcer) LastError() (since time.Time, err error) { return a.loop.LastError() }

func (a *Announcer) hasBacklog() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.checkAll
}

// findPending returns the announcements of new VIPs and, if all is true, of VIPs on new links. It
// also sets the links that answer ARP for them.
func (a *Announcer) findPending(now time.Time, all bool) (out []pendingAnnouncement, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what := a.unchecked
	a.unchecked = map[netip.Addr]struct{}{}
	here := map[vipLink]struct{}{}
	if all = all && a.checkAll; all {
		what, a.checkAll = a.vips, false
	}
	for vip := range what {
		err = cmp.Or(err, a.answers.SetLinks(vip, a.network.AnsweringLinks(vip)))
		for _, l := range a.network.OnLink(vip) {
			if !l.Running() || !l.Ethernet() || l.Loopback() {
				continue
			}
			at, mac := vipLink{vip, l.Index}, string(l.MAC)
			here[at] = struct{}{}
			if a.announced[at] != mac {
				a.announced[at] = mac
				out = append(out, pendingAnnouncement{vipLink: at, mac: mac, due: now.Add(a.delays[0])})
			}
		}
	}
	if all {
		err = cmp.Or(err, a.keepOnly(here))
	}
	return out, err
}

// keepOnly forgets removed VIPs, and the announcements that are not in here. The caller must hold
// mu.
func (a *Announcer) keepOnly(here map[vipLink]struct{}) error {
	maps.DeleteFunc(a.announced, func(at vipLink, _ string) bool {
		_, ok := here[at]
		return !ok
	})
	return a.answers.KeepLinks(func(vip netip.Addr) bool {
		_, ok := a.vips[vip]
		return ok
	})
}

// sendDue sends due announcements, moves them to the next round, and returns how long to wait. It
// forgets failed ones, so the next check of all VIPs finds them again and others do not wait.
func (a *Announcer) sendDue(ctx context.Context, s *socket, rounds [][]pendingAnnouncement) (wait time.Duration, failed error) {
	wait = time.Hour
	tried := 0
	for i := range rounds {
		for len(rounds[i]) > 0 {
			p := rounds[i][0]
			if d := time.Until(p.due); d > 0 {
				wait = min(wait, d)
				break
			}
			if tried == burst {
				return pause, failed
			}
			rounds[i] = rounds[i][1:]
			if ctx.Err() != nil || !a.isCurrent(p) {
				continue
			}
			tried++
			if err := s.send(p); err != nil {
				failed = err
				a.forget(p)
				continue
			}
			if i == 0 {
				a.duplicates.suspect(p.vipLink)
			}
			if i+1 < len(rounds) {
				p.due = time.Now().Add(a.delays[i+1] - a.delays[i])
				rounds[i+1] = append(rounds[i+1], p)
			}
		}
	}
	return wait, failed
}

// forget makes the next check of all VIPs find an announcement again.
func (a *Announcer) forget(p pendingAnnouncement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.announced, p.vipLink)
}

// isCurrent reports whether the VIP must still be announced on its link.
func (a *Announcer) isCurrent(p pendingAnnouncement) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, wanted := a.vips[p.vip]
	return wanted && a.announced[p.vipLink] == p.mac
}

// owns reports whether this node answers for an address.
func (a *Announcer) owns(vip netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, owns := a.vips[vip]
	return owns
}

// owned returns the addresses that this node answers for.
func (a *Announcer) owned() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.vips))
}
