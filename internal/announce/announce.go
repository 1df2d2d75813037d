// Package announce tells the neighbours of a link where a VIP is, by gratuitous ARP and unsolicited neighbour
// advertisements, when the VIP comes to the link or the link comes up: who had it before, or another load balancer's
// address for it, is forgotten at once instead of after a minute.
package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/netdev"
)

const (
	// burst and pause bound how fast frames leave: about 6,000 a second, for all links together.
	burst = 64
	pause = 10 * time.Millisecond
	// lookEvery is the least time between two looks at all VIPs: each is compared with the connected networks.
	lookEvery = 200 * time.Millisecond
)

// Network is where VIPs are: a *netdev.Net.
type Network interface {
	OnLink(netip.Addr) []netdev.Link
	Do(func() error) error
}

// Owner is who puts VIPs into the kernel: a *netdev.VIPs. All methods are idempotent.
type Owner interface {
	Set(ctx context.Context, vips []netip.Addr) error
	Add(ctx context.Context, vips ...netip.Addr) error
	Remove(ctx context.Context, vips ...netip.Addr) error
}

// Announcer is an Owner that announces what it hands on. A VIP is told on every link whose connected network contains
// it, never on lo, three times each: a frame may get lost, and a switch that just brought its port up drops the first.
type Announcer struct {
	owner   Owner
	network Network
	log     *slog.Logger
	delays  []time.Duration // from the start of telling; ascending
	notify  chan struct{}   // capacity 1

	mu    sync.Mutex
	vips  map[netip.Addr]struct{}
	fresh map[netip.Addr]struct{} // not looked at yet
	moved bool                    // look at all
	told  map[spot]string         // MAC under which a VIP is told, or was
}

// spot is a VIP on a link.
type spot struct {
	vip  netip.Addr
	link int
}

// telling is a frame to be sent.
type telling struct {
	spot
	mac string
	due time.Time
}

// New makes an announcer of the VIPs that are given to it for their owner.
func New(n Network, o Owner, log *slog.Logger) *Announcer {
	return &Announcer{
		owner: o, network: n, log: log,
		delays: []time.Duration{0, time.Second, 3 * time.Second},
		notify: make(chan struct{}, 1),
		vips:   map[netip.Addr]struct{}{},
		fresh:  map[netip.Addr]struct{}{},
		told:   map[spot]string{},
	}
}

// Set hands the VIPs to their owner and announces those that are new.
func (a *Announcer) Set(ctx context.Context, vips []netip.Addr) error {
	if err := a.owner.Set(ctx, vips); err != nil {
		return err
	}
	a.mu.Lock()
	next := make(map[netip.Addr]struct{}, len(vips))
	for _, vip := range vips {
		next[vip] = struct{}{}
		a.note(vip)
	}
	a.vips, a.moved = next, true // a look at all forgets those that are gone
	a.mu.Unlock()
	a.signal()
	return nil
}

// Add hands the VIPs to their owner and announces those that are new.
func (a *Announcer) Add(ctx context.Context, vips ...netip.Addr) error {
	if err := a.owner.Add(ctx, vips...); err != nil {
		return err
	}
	a.mu.Lock()
	for _, vip := range vips {
		a.note(vip)
	}
	a.mu.Unlock()
	a.signal()
	return nil
}

// Remove has the owner give the VIPs up; announcements that are still to come are dropped.
func (a *Announcer) Remove(ctx context.Context, vips ...netip.Addr) error {
	a.mu.Lock()
	for _, vip := range vips {
		delete(a.vips, vip)
		delete(a.fresh, vip)
	}
	a.moved = a.moved || len(vips) > 0
	a.mu.Unlock()
	a.signal()
	return a.owner.Remove(ctx, vips...)
}

// Moved says that links or networks may have changed.
func (a *Announcer) Moved() {
	a.mu.Lock()
	a.moved = true
	a.mu.Unlock()
	a.signal()
}

func (a *Announcer) note(vip netip.Addr) {
	if _, had := a.vips[vip]; !had {
		a.vips[vip] = struct{}{}
		a.fresh[vip] = struct{}{}
	}
}

func (a *Announcer) signal() {
	select {
	case a.notify <- struct{}{}:
	default:
	}
}

// Run announces until ctx ends.
func (a *Announcer) Run(ctx context.Context) error {
	fd, err := a.socket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The delays are constant, so the tellings of each round are in order of their time.
	rounds := make([][]telling, len(a.delays))
	var lastLook time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.notify:
		case <-timer.C:
		}
		now := time.Now()
		all := now.Sub(lastLook) >= lookEvery
		if all {
			lastLook = now
		}
		rounds[0] = append(rounds[0], a.look(now, all)...)
		next := a.tell(ctx, fd, rounds)
		if a.waits() {
			next = min(next, lookEvery)
		}
		timer.Reset(next)
	}
}

func (a *Announcer) waits() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.moved
}

// look finds what is to be told: fresh VIPs and, if all, every VIP that came to a link, or whose link has another MAC.
func (a *Announcer) look(now time.Time, all bool) []telling {
	a.mu.Lock()
	defer a.mu.Unlock()
	what := a.fresh
	a.fresh = map[netip.Addr]struct{}{}
	here := map[spot]struct{}{}
	if all = all && a.moved; all {
		what, a.moved = a.vips, false
	}
	var out []telling
	for vip := range what {
		for _, l := range a.network.OnLink(vip) {
			if !l.Running() || !l.Ethernet() || l.Loopback() {
				continue
			}
			at, mac := spot{vip, l.Index}, string(l.MAC)
			here[at] = struct{}{}
			if a.told[at] != mac {
				a.told[at] = mac
				out = append(out, telling{spot: at, mac: mac, due: now.Add(a.delays[0])})
			}
		}
	}
	if all {
		for at := range a.told {
			if _, ok := here[at]; !ok {
				delete(a.told, at)
			}
		}
	}
	return out
}

// tell sends what is due, moves it to the next round, and returns how long to wait.
func (a *Announcer) tell(ctx context.Context, fd int, rounds [][]telling) time.Duration {
	wait := time.Hour
	sent := 0
	for i := range rounds {
		for len(rounds[i]) > 0 {
			t := rounds[i][0]
			if d := time.Until(t.due); d > 0 {
				wait = min(wait, d)
				break
			}
			if sent == burst {
				return pause
			}
			rounds[i] = rounds[i][1:]
			if ctx.Err() != nil || !a.current(t) {
				continue
			}
			sent++
			a.send(fd, t)
			if i+1 < len(rounds) {
				t.due = time.Now().Add(a.delays[i+1] - a.delays[i])
				rounds[i+1] = append(rounds[i+1], t)
			}
		}
	}
	return wait
}

// current says whether the VIP is still to be told there.
func (a *Announcer) current(t telling) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, wanted := a.vips[t.vip]
	return wanted && a.told[t.spot] == t.mac
}

func (a *Announcer) send(fd int, t telling) {
	err := unix.Sendto(fd, frame(t.vip, net.HardwareAddr(t.mac)), 0, &unix.SockaddrLinklayer{Ifindex: t.link, Halen: 6})
	// A link that went down is told about when it comes up again.
	if err != nil && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) {
		a.log.Warn("VIP could not be announced", "vip", t.vip, "ifindex", t.link, "error", err)
	}
}

// socket opens a socket that sends frames and, as it names no protocol, receives none.
func (a *Announcer) socket() (fd int, err error) {
	err = a.network.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open packet socket for announcements: %w", err)
	}
	return fd, nil
}
