package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// fakeHandshakes counts SYNs to endpoints of many services. Dead hosts answer none.
type fakeHandshakes struct {
	mu       sync.Mutex
	services map[bpf.TcServiceKey][]netip.AddrPort
	dead     map[netip.Addr]bool
	ids      map[netip.AddrPort]uint32
	keys     []lb.Key
	idle     bool // there are no new handshakes
	signal   chan struct{}
	read     int // number of endpoints read

	judgeError error // error of JudgeConnections
}

func (r *fakeHandshakes) JudgeConnections() error { return r.judgeError }

func (r *fakeHandshakes) TryEndpoint(bpf.TcServiceKey, netip.AddrPort) {}

func (r *fakeHandshakes) Jiffy() time.Duration { return 4 * time.Millisecond }

func (r *fakeHandshakes) Handshakes(key bpf.TcServiceKey, out []report.HandshakeRow) ([]report.HandshakeRow, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.services[key] {
		row := report.HandshakeRow{Addr: at, ID: r.ids[at]}
		if r.dead[at.Addr()] {
			row.Count.Opened = 1
		}
		out = append(out, row)
		r.read++
	}
	return out, nil
}

func (r *fakeHandshakes) HandshakeNews(yield func(lb.Key)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range r.keys {
		if !r.idle {
			yield(key)
		}
	}
}

func (r *fakeHandshakes) AwaitHandshakes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.idle {
		return nil
	}
	return r.signal
}

// newFakeHandshakes returns a fake with services at 10.0.0.1, of which endpoints lists the
// endpoints, and the Health that has them.
func newFakeHandshakes(t *testing.T, services int, endpoints func(n int) string) (*fakeHandshakes, *Health) {
	t.Helper()
	r := &fakeHandshakes{
		services: map[bpf.TcServiceKey][]netip.AddrPort{}, dead: map[netip.Addr]bool{}, ids: map[netip.AddrPort]uint32{}, signal: make(chan struct{}, 1),
	}
	h := NewHealth(newFakeProber(), Observers{Log: slog.New(slog.DiscardHandler)})
	for n := range services {
		s := service(t, fmt.Sprintf("10.0.0.1:%d/tcp endpoints=%s", 1000+n, endpoints(n)))
		for _, e := range s.Endpoints {
			r.services[compile.Key(s.Key)] = append(r.services[compile.Key(s.Key)], e.AddrPort())
			r.ids[e.AddrPort()] = uint32(len(r.ids))
		}
		h.probes.add(s)
		r.keys = append(r.keys, s.Key)
	}
	h.probes.applyRequests()
	return r, h
}

// TestManyEndpointsFail checks that the failure of a host with hundreds of endpoints is noticed as
// fast as that of one endpoint, also while ejected endpoints are checked without success.
//
// P43
func TestManyEndpointsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const services = 400
		r, h := newFakeHandshakes(t, services, func(n int) string {
			return fmt.Sprintf("192.168.1.1:%[1]d,192.168.1.2:%[1]d,192.168.1.3:%[1]d,192.168.1.4:%[1]d", 1000+n)
		})
		p := NewPassive(h, r)
		p.suspects.most = 1000 // independent of this machine
		p.connect = func(_ context.Context, at netip.AddrPort, timeout, _ time.Duration) (string, bool) {
			if r.mu.Lock(); !r.dead[at.Addr()] {
				r.mu.Unlock()
				return "", false
			}
			r.mu.Unlock()
			time.Sleep(timeout)
			return "no answer", false
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		out := func() int {
			h.probes.mu.Lock()
			defer h.probes.mu.Unlock()
			return len(h.probes.ejections.current)
		}
		for n, host := range []netip.Addr{netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("192.168.1.2")} {
			time.Sleep(time.Duration(5*n) * time.Second) // so the first endpoints are checked again meanwhile
			time.Sleep(time.Second)
			r.mu.Lock()
			r.dead[host] = true
			r.mu.Unlock()
			if time.Sleep(time.Second); out() != (n+1)*services {
				t.Errorf("%d endpoints are out a second after %d hosts have died", out(), n+1)
			}
		}
		cancel()
		run.Wait()
	})
}

// TestPassiveSleeps checks that services are read once, and then only when the data path reports
// news: without news, nothing is read, for any number of services. A handshake that fails after a
// long sleep is noticed as fast as any other.
func TestPassiveSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const services, endpoints = 1000, 2
		r, h := newFakeHandshakes(t, services, func(n int) string {
			return fmt.Sprintf("192.168.%[1]d.%[2]d:80,192.168.%[1]d.%[2]d:81", 1+n/250, 1+n%250)
		})
		p := NewPassive(h, r)
		p.connect = func(context.Context, netip.AddrPort, time.Duration, time.Duration) (string, bool) {
			return "no answer", false
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		time.Sleep(time.Second)
		r.mu.Lock()
		r.idle = true
		r.mu.Unlock()
		time.Sleep(time.Second)
		r.mu.Lock()
		r.read = 0
		r.mu.Unlock()
		time.Sleep(time.Hour)
		r.mu.Lock()
		if r.read != 0 {
			t.Errorf("%d endpoints were read while nothing happened", r.read)
		}
		r.dead[netip.MustParseAddr("192.168.1.1")], r.idle, r.keys = true, false, r.keys[:1]
		r.mu.Unlock()
		r.signal <- struct{}{}
		time.Sleep(600 * time.Millisecond)
		if r.mu.Lock(); r.read == 0 || r.read > 12*endpoints {
			t.Errorf("%d endpoints were read in 0.6 s in which one service had news", r.read)
		}
		r.mu.Unlock()
		h.probes.mu.Lock()
		if len(h.probes.ejections.current) == 0 {
			t.Error("an endpoint that fails after a long sleep was not noticed")
		}
		h.probes.mu.Unlock()
		cancel()
		run.Wait()
	})
}

// TestJudgeFails checks that judging connections that fails repeatedly is logged once, although
// counters can be read.
func TestJudgeFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, h := newFakeHandshakes(t, 1, func(int) string { return "192.168.1.1:80" })
		r.judgeError = errors.New("no memory")
		var log bytes.Buffer
		h.Log = slog.New(slog.NewTextHandler(&log, nil))
		p := NewPassive(h, r)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		time.Sleep(10 * time.Second)
		cancel()
		run.Wait()
		if n := strings.Count(log.String(), "cannot be judged"); n != 1 {
			t.Errorf("the failure was logged %d times, want once", n)
		}
	})
}
