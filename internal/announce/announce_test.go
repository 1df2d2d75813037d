package announce

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const testTimeout = 20 * time.Second

func TestFrames(t *testing.T) {
	t.Parallel()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	tests := map[string]string{
		"10.1.0.50": "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a010032 000000000000 0a010032",
		"2001:db8:1::50": "333300000001 020000000001 86dd 60000000 0020 3a ff" +
			"20010db8000100000000000000000050 ff020000000000000000000000000001" +
			"88 00 f88a 20000000 20010db8000100000000000000000050 02 01 020000000001",
	}
	for vip, want := range tests {
		want = strings.ReplaceAll(want, " ", "")
		if diff := cmp.Diff(want, hex.EncodeToString(frame(netip.MustParseAddr(vip), mac))); diff != "" {
			t.Errorf("%s: %s", vip, diff)
		}
	}
}

// lab is a balancer lb whose eth0 (10.1.0.1/24, 2001:db8:1::1/64) is connected to peer (.2), with
// an announcer.
type lab struct {
	lb, peer *netnstest.Host
	network  *netdev.Net
	announce *Announcer
	frames   chan string  // the announced VIPs and MACs that peer receives
	broken   *atomic.Bool // opening a socket fails
}

// flaky fails to open sockets while broken is set.
type flaky struct {
	*netdev.Net
	broken atomic.Bool
}

func (f *flaky) Do(do func() error) error {
	if f.broken.Load() {
		return errors.New("broken")
	}
	return f.Net.Do(do)
}

// allLinksAnswer does not limit the links that answer ARP.
type allLinksAnswer struct{}

func (allLinksAnswer) SetLinks(netip.Addr, []int) error { return nil }

func (allLinksAnswer) KeepLinks(func(netip.Addr) bool) error { return nil }

func newLab(t *testing.T, delays ...time.Duration) *lab {
	t.Helper()
	l := labtest.New(t)
	out := &lab{frames: make(chan string, 1000)}
	for name, h := range map[string]**netnstest.Host{"lb": &out.lb, "peer": &out.peer} {
		var err error
		if *h, err = l.Host(name); err != nil {
			t.Fatal(err)
		}
	}
	end := func(h *netnstest.Host, i int) netnstest.End {
		return netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.1.0.%d/24", i)), netip.MustParsePrefix(fmt.Sprintf("2001:db8:1::%d/64", i)),
		}}
	}
	if err := l.Link(end(out.lb, 1), end(out.peer, 2), 0); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*netnstest.Host{out.lb, out.peer} { // IPv6 works only with a link-local address
		labtest.Eventually(t, testTimeout, func(context.Context) error {
			routes, err := h.Run("ip", "-6", "route", "show", "table", "local", "dev", "eth0")
			if err == nil && !strings.Contains(routes, "local fe80::") {
				err = fmt.Errorf("still settling: %s", routes)
			}
			return err
		})
	}
	out.capture(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	if out.network, err = netdev.OpenAt(out.lb.Path(), log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.network.Close() })
	network := &flaky{Net: out.network}
	out.broken = &network.broken
	out.announce = New(network, out.network.VIPs(), allLinksAnswer{}, 3, log)
	out.announce.delays = delays
	ctx, cancel := context.WithCancel(context.Background())
	hub := event.NewHub()
	var running sync.WaitGroup
	running.Go(func() { out.announce.Run(ctx, hub) })
	running.Go(func() { out.network.Run(ctx, hub) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return out
}

// capture records the announcements that peer receives.
func (l *lab) capture(t *testing.T) {
	t.Helper()
	var file *os.File
	err := l.peer.Do(func() error {
		all := uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
		file = os.NewFile(uintptr(fd), "packets")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	done, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, err := file.Read(buf)
			if err != nil {
				return
			}
			if vip, mac, ok := announced(buf[:n]); ok {
				select {
				case l.frames <- vip.String() + " " + mac.String():
				case <-end:
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(end)
		_ = file.Close()
		<-done
	})
}

// announced parses an announcement, and reports whether the frame is one.
func announced(f []byte) (netip.Addr, net.HardwareAddr, bool) {
	mac := net.HardwareAddr(append([]byte(nil), f[6:12]...))
	switch {
	case len(f) >= 42 && f[12] == 8 && f[13] == 6 && string(f[28:32]) == string(f[38:42]):
		return netip.AddrFrom4([4]byte(f[28:32])), mac, true
	case len(f) == 86 && f[12] == 0x86 && f[13] == 0xdd && f[54] == 136 && f[38] == 0xff && f[58]&0x40 == 0:
		return netip.AddrFrom16([16]byte(f[62:78])), mac, true
	}
	return netip.Addr{}, nil, false
}

// count reads frames until it has n of one kind, and returns the number of each kind.
func (l *lab) count(t *testing.T, n int, what string) map[string]int {
	t.Helper()
	got := map[string]int{}
	timeout := time.After(testTimeout)
	for got[what] < n {
		select {
		case f := <-l.frames:
			got[f]++
		case <-timeout:
			t.Fatalf("%d times %q wanted, got %v", n, what, got)
		}
	}
	return got
}

func vips(s ...string) []netip.Addr {
	out := make([]netip.Addr, len(s))
	for i, a := range s {
		out[i] = netip.MustParseAddr(a)
	}
	return out
}

func TestAnnounce(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0, 20*time.Millisecond, 60*time.Millisecond)
	mac := func() string {
		m, err := l.lb.MAC("eth0")
		if err != nil {
			t.Fatal(err)
		}
		return m.String()
	}
	// The peer has another MAC for the VIPs.
	for _, vip := range []string{"10.1.0.50", "2001:db8:1::50"} {
		if _, err := l.peer.Run("ip", "neigh", "replace", vip, "dev", "eth0", "lladdr", "02:00:00:00:00:99", "nud", "stale"); err != nil {
			t.Fatal(err)
		}
	}
	set := vips("10.1.0.50", "2001:db8:1::50", "20.20.20.1", "2001:db8:20::1")
	if failed := l.announce.Set(t.Context(), set); failed != nil {
		t.Fatal(failed)
	}
	for _, vip := range []string{"10.1.0.50", "2001:db8:1::50"} {
		labtest.Eventually(t, testTimeout, func(context.Context) error {
			out, err := l.peer.Run("ip", "neigh", "show", vip)
			if err == nil && !strings.Contains(out, mac()) {
				err = fmt.Errorf("peer still believes %s", out)
			}
			return err
		})
	}

	// Three times each, and only on the link. The last VIP marks the end, as frames keep their
	// order.
	if failed := l.announce.Add(t.Context(), vips("10.1.0.51", "10.1.0.50")...); failed != nil {
		t.Fatal(failed)
	}
	got := l.count(t, 3, "10.1.0.51 "+mac())
	if failed := l.announce.Add(t.Context(), vips("10.1.0.52")...); failed != nil {
		t.Fatal(failed)
	}
	for f, n := range l.count(t, 3, "10.1.0.52 "+mac()) {
		got[f] += n
	}
	want := map[string]int{
		"10.1.0.50 " + mac(): 3, "2001:db8:1::50 " + mac(): 3, "10.1.0.51 " + mac(): 3, "10.1.0.52 " + mac(): 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("announcements (-want +got):\n%s", diff)
	}

	// Again after the link gets another MAC, or comes up.
	old := mac()
	if _, err := l.lb.Run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:33"); err != nil {
		t.Fatal(err)
	}
	l.count(t, 3, "10.1.0.50 02:00:00:00:00:33")
	if _, err := l.lb.Run("ip", "link", "set", "eth0", "address", old); err != nil {
		t.Fatal(err)
	}
	l.count(t, 3, "10.1.0.50 "+old)
	for _, state := range []string{"down", "up"} {
		if _, err := l.peer.Run("ip", "link", "set", "eth0", state); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, testTimeout, func(context.Context) error {
			for _, link := range l.network.Links() {
				if link.Name == "eth0" && link.Running() != (state == "up") {
					return fmt.Errorf("eth0 is not %s yet", state)
				}
			}
			l.announce.mu.Lock()
			defer l.announce.mu.Unlock()
			if state == "down" && len(l.announce.announced) != 0 {
				return errors.New("not noticed yet")
			}
			return nil
		})
	}
	l.count(t, 3, "10.1.0.50 "+old)
}

// TestRemovedIsSilent checks that a VIP that is removed before its last announcement is not
// announced again.
func TestRemovedIsSilent(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0, 300*time.Millisecond)
	mac, err := l.lb.MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if failed := l.announce.Add(t.Context(), vips("10.1.0.50")...); failed != nil {
		t.Fatal(failed)
	}
	l.count(t, 1, "10.1.0.50 "+mac.String())
	if failed := l.announce.Remove(t.Context(), vips("10.1.0.50")...); failed != nil {
		t.Fatal(failed)
	}
	if failed := l.announce.Add(t.Context(), vips("10.1.0.51")...); failed != nil {
		t.Fatal(failed)
	}
	if got := l.count(t, 2, "10.1.0.51 "+mac.String()); got["10.1.0.50 "+mac.String()] != 0 {
		t.Errorf("the VIP is announced after it was removed: %v", got)
	}
}

// TestAddedAgain checks that a VIP that is removed and added again counts as new, and that the
// others are not checked.
func TestAddedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	a := New(l.network, l.network.VIPs(), allLinksAnswer{}, 3, slog.New(slog.NewTextHandler(t.Output(), nil))) // not started
	add := func() {
		t.Helper()
		if failed := a.Add(t.Context(), vips("10.1.0.50")...); failed != nil {
			t.Fatal(failed)
		}
		if due, _ := a.findPending(time.Now(), false); len(due) != 1 {
			t.Errorf("to be announced: %v", due)
		}
	}
	add()
	if failed := a.Remove(t.Context(), vips("10.1.0.50")...); failed != nil {
		t.Fatal(failed)
	}
	if a.hasBacklog() || len(a.announced) != 0 {
		t.Errorf("after the VIP was removed: %v, to look at all: %v", a.announced, a.hasBacklog())
	}
	add()
}

// TestRepeat checks that a VIP is announced again on demand, and not otherwise.
func TestRepeat(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	a := New(l.network, l.network.VIPs(), allLinksAnswer{}, 3, slog.New(slog.NewTextHandler(t.Output(), nil))) // not started
	if failed := a.Add(t.Context(), vips("10.1.0.50")...); failed != nil {
		t.Fatal(failed)
	}
	for i, want := range []int{1, 0, 1} {
		if i == 2 {
			a.Repeat()
		} else {
			a.Invalidate()
		}
		if due, err := a.findPending(time.Now(), true); err != nil || len(due) != want {
			t.Errorf("check %d: %d announcements are due, want %d: %v", i, len(due), want, err)
		}
	}
}

// TestGoesOn checks that VIPs that could not be announced are announced later, and that LastError
// reports the failure until then.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	mac, err := l.lb.MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	l.broken.Store(true)
	if failed := l.announce.Add(t.Context(), vips("10.1.0.50", "10.1.0.51")...); failed != nil {
		t.Fatal(failed)
	}
	labtest.Eventually(t, testTimeout, func(context.Context) error {
		if since, err := l.announce.LastError(); err == nil || since.IsZero() {
			return fmt.Errorf("does not say that it fails since a time: %v, %w", since, err)
		}
		return nil
	})
	l.broken.Store(false)
	got := l.count(t, 1, "10.1.0.50 "+mac.String())
	if got["10.1.0.51 "+mac.String()] == 0 {
		l.count(t, 1, "10.1.0.51 "+mac.String())
	}
	labtest.Eventually(t, testTimeout, func(context.Context) error {
		_, err := l.announce.LastError()
		return err
	})
}

func TestDelays(t *testing.T) {
	t.Parallel()
	for times, want := range map[int]string{1: "[0s]", 3: "[0s 1s 3s]", 5: "[0s 1s 3s 5s 7s]"} {
		if got := fmt.Sprint(delays(times)); got != want {
			t.Errorf("%d: %s, want %s", times, got, want)
		}
	}
}
