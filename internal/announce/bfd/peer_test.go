package bfd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

const testTimeout = 20 * time.Second

// watcher counts losses, and sends more than BFD asks for.
type watcher struct{ lost atomic.Int64 } // UnixNano of the last one

func (*watcher) Extra() []byte                   { return []byte("more than BFD, as nodes send it") }
func (*watcher) Heard(Status, []byte)            {}
func (w *watcher) Lost(Status)                   { w.lost.Store(time.Now().UnixNano()) }
func (*watcher) Sent(_, _ time.Time, _ State)    {}
func (w *watcher) lostAfter(t time.Time) float64 { return float64(w.lost.Load()-t.UnixNano()) / 1e6 }

// newHosts returns a node (10.0.0.1, 2001:db8::1) and its neighbor (.2), on one link.
func newHosts(t *testing.T) (l *netnstest.Lab, node, neighbor *netnstest.Host) {
	t.Helper()
	l = labtest.New(t)
	var ends [2]netnstest.End
	for i, name := range []string{"node", "neighbor"} {
		h, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", i+1)), netip.MustParsePrefix(fmt.Sprintf("2001:db8::%d/64", i+1)),
		}}
	}
	if err := l.Link(ends[0], ends[1], 0); err != nil {
		t.Fatal(err)
	}
	return l, ends[0].Host, ends[1].Host
}

// start runs a session in a host until the test ends, or the returned function is called.
func start(t *testing.T, h *netnstest.Host, remote string) (*Peer, *watcher, func()) {
	t.Helper()
	return run(t, h, Config{Remote: netip.MustParseAddr(remote), Interval: 100 * ms, Multiplier: 3})
}

func run(t *testing.T, h *netnstest.Host, c Config) (*Peer, *watcher, func()) {
	t.Helper()
	w := &watcher{}
	p := NewPeer(c, w, h.Do)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx, func() bool { return false }); close(done) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return p, w, stop
}

func awaitState(t *testing.T, p *Peer, state State) {
	t.Helper()
	await.NoError(t, testTimeout, func() error {
		if s := p.Status(); s.State != state {
			return fmt.Errorf("got %+v, want s.State == state", s)
		}
		return nil
	})
}

// TestFRR checks sessions with bfdd of FRR, and how long a stopped one stays up.
func TestFRR(t *testing.T) {
	t.Parallel()
	l, node, router := newHosts(t)
	f, err := routers.StartFRR(l, router, `bfd
 peer 10.0.0.1
  receive-interval 100
  transmit-interval 100
 exit
 peer 2001:db8::1 local-address 2001:db8::2
  receive-interval 100
  transmit-interval 100
 exit
exit
`)
	if err != nil {
		t.Fatal(err)
	}
	p4, w, stop := start(t, node, "10.0.0.2")
	p6, _, _ := start(t, node, "2001:db8::2")
	awaitState(t, p4, Up)
	awaitState(t, p6, Up)
	await.NoError(t, testTimeout, func() error {
		out, err := f.Query("bfdd", "show bfd peers json")
		if err == nil && strings.Count(out, `"status":"up"`) != 2 {
			err = fmt.Errorf("the sessions are not both up: %s", out)
		}
		if s := p4.Status(); err == nil && (s.Detection != 300*ms || s.Interval != 100*ms) {
			err = fmt.Errorf("the session is %+v, want detection in 300 ms and packets every 100 ms", s)
		}
		return err
	})
	stopped := time.Now()
	f.Daemon("bfdd").Signal(syscall.SIGSTOP)
	awaitState(t, p4, Down)
	if took := w.lostAfter(stopped); took > 500 {
		t.Errorf("detected after %.0f ms", took)
	}
	if s := p4.Status(); !strings.HasPrefix(s.Reason, "no packet from 10.0.0.2 for 300ms") || s.Failures != 1 {
		t.Errorf(`got %+v, want s.Reason begins with "no packet from 10.0.0.2 for 300ms", s.Failures == 1`, s)
	}
	f.Daemon("bfdd").Signal(syscall.SIGCONT)
	awaitState(t, p4, Up)
	stop()
	await.NoError(t, time.Second, func() error { // at once
		out, err := f.Query("bfdd", "show bfd peer 10.0.0.1 json")
		if err == nil && !strings.Contains(out, `"remote-diagnostic":"administratively down"`) {
			err = fmt.Errorf("FRR has not heard that the session was shut down: %s", out)
		}
		return err
	})
}

// TestBIRD checks sessions with BIRD.
func TestBIRD(t *testing.T) {
	t.Parallel()
	l, node, router := newHosts(t)
	b, err := routers.StartBIRD(l, router, `router id 10.0.0.2;
protocol device {}
protocol bfd {
	interface "eth0" { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; };
	neighbor 10.0.0.1;
	neighbor 2001:db8::1;
}
`)
	if err != nil {
		t.Fatal(err)
	}
	p4, _, _ := start(t, node, "10.0.0.2")
	p6, _, _ := start(t, node, "2001:db8::2")
	awaitState(t, p4, Up)
	awaitState(t, p6, Up)
	await.NoError(t, testTimeout, func() error {
		out, err := b.Birdc("show", "bfd", "sessions")
		if err == nil && (strings.Count(out, " Up ") != 2 || strings.Count(out, " 0.300") != 2) {
			err = fmt.Errorf("BIRD's sessions are not both up with detection in 300 ms: %s", out)
		}
		return err
	})
}

// TestSharedPort checks that another speaker in this machine, which listens on all addresses as
// gobgp does, gets the packets of all other peers, and none of ours.
func TestSharedPort(t *testing.T) {
	t.Parallel()
	_, node, router := newHosts(t)
	for _, a := range []string{"10.0.0.3/24", "2001:db8::3/64"} {
		if err := router.AddAddress("eth0", netip.MustParsePrefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	heard := make(chan string, 1000)
	other := func() {
		var c net.PacketConn
		err := node.Do(func() (err error) {
			config := net.ListenConfig{Control: control(func(fd int) error {
				return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
			})}
			c, err = config.ListenPacket(t.Context(), "udp", ":3784")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			for b := make([]byte, 2048); ; {
				_, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				heard <- from.(*net.UDPAddr).AddrPort().Addr().Unmap().String() //nolint:forcetypeassert // of UDP
			}
		}()
	}
	other()
	ours := map[string]*Peer{}
	for _, remote := range []string{"10.0.0.2", "2001:db8::2"} {
		p, _, _ := start(t, node, remote)
		await.True(t, testTimeout, "its socket is open", func() bool { return p.Status().Local.IsValid() })
		ours[remote] = p
	}
	other() // one that starts later
	for _, a := range []string{"10.0.0.2", "10.0.0.3", "2001:db8::2", "2001:db8::3"} {
		source := netip.MustParseAddr(a)
		to := netip.MustParseAddr("10.0.0.1")
		if source.Is6() {
			to = netip.MustParseAddr("2001:db8::1")
		}
		p := NewPeer(Config{Remote: to, Source: source, Interval: 100 * ms, Multiplier: 3}, &watcher{}, router.Do)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { p.Run(ctx, func() bool { return false }); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	for _, p := range ours {
		awaitState(t, p, Up)
	}
	seen := map[string]int{}
	for seen["10.0.0.3"] < 2 || seen["2001:db8::3"] < 2 {
		select {
		case from := <-heard:
			seen[from]++
		case <-time.After(testTimeout):
			t.Fatalf("the other speaker has heard %v", seen)
		}
	}
	if len(seen) != 2 {
		t.Errorf("the other speaker has heard %v", seen)
	}
	for _, p := range ours {
		if s := p.Status(); s.State != Up || s.Discarded > 0 {
			t.Errorf("got %+v, want s.State == Up, s.Discarded == 0", s)
		}
	}
}

// TestStrangers checks that packets of others, or from afar, do not end a session.
func TestStrangers(t *testing.T) {
	t.Parallel()
	_, node, router := newHosts(t)
	p, _, _ := start(t, node, "10.0.0.2")
	_, _, _ = start(t, router, "10.0.0.1")
	awaitState(t, p, Up)
	down := Packet{State: AdminDown, Multiplier: 3, My: 1, MinTx: time.Second, MinRx: time.Second}
	send := func(ttl int) {
		err := router.Do(func() error {
			c, err := net.Dial("udp", "10.0.0.1:3784")
			if err != nil {
				return err
			}
			defer c.Close()                            //nolint:errcheck // datagrams are gone
			raw, err := c.(*net.UDPConn).SyscallConn() //nolint:forcetypeassert // of UDP
			if err != nil {
				return err
			}
			if err := control(func(fd int) error { return syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_TTL, ttl) })("", "", raw); err != nil {
				return err
			}
			_, err = c.Write(down.Append(nil))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		send(255)
		send(64)
	}
	await.True(t, testTimeout, "all are discarded", func() bool { return p.Status().Discarded >= 10 })
	if s := p.Status(); s.State != Up || s.Failures > 0 {
		t.Errorf("got %+v, want s.State == Up, s.Failures == 0", s)
	}
}

// TestRefused checks that a session whose peer has none reports that, such as one of three nodes.
func TestRefused(t *testing.T) {
	t.Parallel()
	_, node, _ := newHosts(t)
	for _, remote := range []string{"10.0.0.2", "2001:db8::2"} {
		p, _, _ := start(t, node, remote)
		await.True(t, testTimeout, "the peer refuses packets", func() bool {
			return strings.HasPrefix(p.Status().Reason, remote+" refuses BFD packets: it has no session with ")
		})
	}
}

// TestLinkReturns checks that a session between link-local addresses begins again when the
// interface was made again, whether its source is configured or not.
func TestLinkReturns(t *testing.T) {
	t.Parallel()
	l, node, neighbor := newHosts(t)
	ends := [2]netnstest.End{{Host: node, Interface: "link"}, {Host: neighbor, Interface: "link"}}
	relink := func() {
		t.Helper()
		if err := l.Link(ends[0], ends[1], 0); err != nil {
			t.Fatal(err)
		}
		for i, e := range ends {
			labtest.Run(t, e.Host, "ip", "address", "add", fmt.Sprintf("fe80::%d/64", i+1), "dev", "link", "nodad")
		}
	}
	relink()
	local, remote := netip.MustParseAddr("fe80::1%link"), netip.MustParseAddr("fe80::2%link")
	a, _, _ := run(t, node, Config{Remote: remote, Source: local, Interval: 100 * ms, Multiplier: 3})
	b, _, _ := start(t, neighbor, local.String())
	awaitState(t, a, Up)
	awaitState(t, b, Up)
	labtest.Run(t, node, "ip", "link", "delete", "dev", "link")
	awaitState(t, a, Down)
	awaitState(t, b, Down)
	relink()
	awaitState(t, a, Up)
	awaitState(t, b, Up)
}
