package announce

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/kernel/netdev"
)

const (
	// formerOwnerTime is how long a former owner of a VIP may still answer: roles change in less.
	formerOwnerTime = time.Second
	// probeInterval is how often all VIPs are probed.
	probeInterval = time.Minute
	// recheckInterval is how often a VIP with a second owner is probed. After maxUnanswered
	// unanswered probes in a row, the other owner counts as gone.
	recheckInterval = 2 * time.Second
	maxUnanswered   = 2
	// passPause is the least time between two passes over all probes: there may be 65,536 VIPs.
	passPause = 100 * time.Millisecond
)

// LinkNetwork is the network of the VIPs. *netdev.Net implements it.
type LinkNetwork interface {
	Network
	Links() []netdev.Link
}

// Duplicates finds other hosts that answer for VIPs of this node, by address probes (RFC 5227, RFC
// 4862): when this node begins to own a VIP, when another host announces it, and once a minute. It
// only reports them: if this node gave up a claimed VIP, any host on the link could stop a service.
type Duplicates struct {
	network  LinkNetwork
	owns     func(netip.Addr) bool
	owned    func() []netip.Addr
	changed  func() // called when the duplicates have changed
	log      *slog.Logger
	suspects chan vipLink // VIPs that are new on a link
	claims   chan claimant
	queue    []vipLink // probes to be sent now; used by Run only

	mu    sync.Mutex
	found map[vipLink]Duplicate
}

// Duplicate is another host that answers for a VIP of this node.
type Duplicate struct {
	VIP  netip.Addr
	Link string
	MAC  net.HardwareAddr
}

// claimant is a host that claims an address.
type claimant struct {
	vipLink
	mac [6]byte
}

// probing is the state of probes for one VIP on a link.
type probing struct {
	due        time.Time
	sent       time.Time // of the last probe; zero: none
	unanswered int       // probes since the last answer
}

// NewDuplicates returns the search for the VIPs of an announcer. It calls changed when the
// duplicates have changed.
func NewDuplicates(n LinkNetwork, a *Announcer, changed func(), log *slog.Logger) *Duplicates {
	d := &Duplicates{
		network: n, owns: a.owns, owned: a.owned, changed: changed, log: log,
		suspects: make(chan vipLink, 4096), claims: make(chan claimant, 256), found: map[vipLink]Duplicate{},
	}
	a.duplicates = d
	return d
}

// Found returns the duplicates, in order.
func (d *Duplicates) Found() []Duplicate {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Duplicate, 0, len(d.found))
	for _, one := range d.found {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Duplicate) int { return a.VIP.Compare(b.VIP) })
	return list
}

// Problems returns the duplicates as problems of VIPs.
func (d *Duplicates) Problems() []netdev.Problem {
	found := d.Found()
	list := make([]netdev.Problem, len(found))
	for i, one := range found {
		list[i] = netdev.Problem{
			Kind: "vip", Key: one.VIP.String(),
			What: fmt.Sprintf("another host, %s on %s, answers for VIP %s, so clients may reach either", one.MAC, one.Link, one.VIP),
			Hint: "remove the address there, or make one of the nodes BACKUP: loxicmd set hastate",
		}
	}
	return netdev.BoundedProblems(list, len(list), "vip", "VIPs that other hosts answer for")
}

// suspect schedules a probe of a VIP soon. A full queue drops it: the next round finds it.
func (d *Duplicates) suspect(at vipLink) {
	if d == nil {
		return
	}
	select {
	case d.suspects <- at:
	default:
	}
}

// Run probes until ctx ends.
func (d *Duplicates) Run(ctx context.Context) {
	var listening sync.WaitGroup
	defer listening.Wait()
	for _, protocol := range []listener{arpListener(), ndListener()} {
		listening.Go(func() { d.listen(ctx, protocol) })
	}
	socket := &socket{network: d.network, fd: -1}
	defer socket.close()
	states := map[vipLink]*probing{}
	nextRound := time.Now().Add(probeInterval)
	next := nextRound // when probes are due
	timer := time.NewTimer(probeInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-d.suspects:
			now := time.Now()
			scheduleProbe(states, at, now.Add(formerOwnerTime))
			next = earlier(next, now.Add(formerOwnerTime))
		case s := <-d.claims:
			now := time.Now()
			d.handle(states, s, now)
			next = earlier(next, now.Add(formerOwnerTime))
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(nextRound) {
			nextRound, next = now.Add(probeInterval), now
			d.scheduleAll(states, now)
		}
		if !now.Before(next) {
			next = now.Add(d.probe(ctx, socket, states, now))
		}
		timer.Reset(time.Until(earlier(next, nextRound)))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// scheduleProbe schedules a probe of a VIP, unless one is due earlier.
func scheduleProbe(states map[vipLink]*probing, at vipLink, due time.Time) {
	p := states[at]
	if p == nil {
		p = &probing{}
		states[at] = p
	}
	if p.due.IsZero() || due.Before(p.due) {
		p.due = due
	}
}

// scheduleAll schedules probes of all VIPs.
func (d *Duplicates) scheduleAll(states map[vipLink]*probing, now time.Time) {
	for _, vip := range d.owned() {
		for _, l := range d.network.OnLink(vip) {
			if l.Running() && l.Ethernet() && !l.Loopback() {
				scheduleProbe(states, vipLink{vip, l.Index}, now)
			}
		}
	}
}

// handle considers a host that claims a VIP. Only the answer to a probe proves a duplicate: a
// former owner may have announced the VIP just before giving it up.
func (d *Duplicates) handle(states map[vipLink]*probing, s claimant, now time.Time) {
	p := states[s.vipLink]
	if p == nil || p.sent.IsZero() || now.Sub(p.sent) > formerOwnerTime {
		scheduleProbe(states, s.vipLink, now.Add(formerOwnerTime))
		return
	}
	p.unanswered = 0
	d.set(s.vipLink, &Duplicate{VIP: s.vip, Link: d.nameOf(s.link), MAC: s.mac[:]})
	scheduleProbe(states, s.vipLink, now.Add(recheckInterval))
}

// probe sends due probes, at most burst of them, and returns how long to wait.
func (d *Duplicates) probe(ctx context.Context, socket *socket, states map[vipLink]*probing, now time.Time) time.Duration {
	if len(d.queue) == 0 {
		if wait := d.findDue(states, now); len(d.queue) == 0 {
			return max(wait, passPause)
		}
	}
	n := min(burst, len(d.queue))
	for _, at := range d.queue[:n] {
		if p := states[at]; p != nil && d.owns(at.vip) && ctx.Err() == nil {
			d.send(socket, at, p, now)
		}
	}
	if d.queue = d.queue[n:]; len(d.queue) > 0 {
		return pause
	}
	d.queue = nil
	return passPause
}

// findDue queues the probes that are due, forgets those without an answer, and returns how long to
// wait for others.
func (d *Duplicates) findDue(states map[vipLink]*probing, now time.Time) time.Duration {
	wait := probeInterval
	for at, p := range states {
		switch {
		case !d.owns(at.vip):
			d.set(at, nil)
			delete(states, at)
		case p.due.IsZero():
			if now.Sub(p.sent) > formerOwnerTime && !d.has(at) {
				delete(states, at) // no answer
			} else {
				wait = min(wait, formerOwnerTime)
			}
		case now.Before(p.due):
			wait = min(wait, p.due.Sub(now))
		default:
			d.queue = append(d.queue, at)
		}
	}
	return wait
}

// send probes a VIP. It ignores failures, since the announcer reports those of the same socket
// type.
func (d *Duplicates) send(socket *socket, at vipLink, p *probing, now time.Time) {
	p.due, p.sent = time.Time{}, now
	if p.unanswered++; p.unanswered > maxUnanswered {
		d.set(at, nil)
	}
	if d.has(at) {
		p.due = now.Add(recheckInterval)
	}
	for _, l := range d.network.OnLink(at.vip) {
		if l.Index == at.link {
			_ = socket.sendFrame(at, probeFrame(at.vip, l.MAC))
		}
	}
}

func (d *Duplicates) has(at vipLink) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, has := d.found[at]
	return has
}

// set records the duplicate of a VIP; nil: there is none.
func (d *Duplicates) set(at vipLink, one *Duplicate) {
	d.mu.Lock()
	before, had := d.found[at]
	if one == nil {
		delete(d.found, at)
	} else {
		d.found[at] = *one
	}
	d.mu.Unlock()
	if had != (one != nil) || one != nil && before.MAC.String() != one.MAC.String() {
		d.changed()
	}
}

func (d *Duplicates) nameOf(index int) string {
	for _, l := range d.network.Links() {
		if l.Index == index {
			return l.Name
		}
	}
	return fmt.Sprint(index)
}

// isOurs reports whether a MAC address belongs to an interface of this machine.
func (d *Duplicates) isOurs(mac []byte) bool {
	return slices.ContainsFunc(d.network.Links(), func(l netdev.Link) bool { return slices.Equal(l.MAC, net.HardwareAddr(mac)) })
}
