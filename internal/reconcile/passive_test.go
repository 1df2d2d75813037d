package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/compile"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/health"
	"loxilb/internal/lb"
)

// rack counts SYNs to endpoints of many services, none of which its dead hosts answer.
type rack struct {
	mu       sync.Mutex
	services map[bpf.TcServiceKey][]netip.AddrPort
	dead     map[netip.Addr]bool
	ids      map[netip.AddrPort]uint32
}

func (r *rack) Jiffy() time.Duration { return 4 * time.Millisecond }

func (r *rack) Handshakes(key bpf.TcServiceKey, out []lb.HandshakeRow) ([]lb.HandshakeRow, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.services[key] {
		row := lb.HandshakeRow{At: at, ID: r.ids[at]}
		if r.dead[at.Addr()] {
			row.Count.Opened = 1
		}
		out = append(out, row)
	}
	return out, nil
}

// TestRack: a host, or a rack, that dies with hundreds of endpoints takes no longer to be noticed than one endpoint, also while others that
// are out are asked in vain whether they are well again.
//
// P43
func TestRack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const services = 400
		r := &rack{services: map[bpf.TcServiceKey][]netip.AddrPort{}, dead: map[netip.Addr]bool{}, ids: map[netip.AddrPort]uint32{}}
		h := NewHealth(&prober{targets: map[string]health.Target{}, states: map[string]health.Status{}}, Observers{Log: slog.New(slog.DiscardHandler)})
		early, late, well := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("192.168.1.2"), netip.MustParseAddr("192.168.1.3")
		for i := range services {
			port := 1000 + i
			s := service(t, fmt.Sprintf("10.0.0.1:%d/tcp endpoints=%s:%d,%s:%d,%s:%d,192.168.1.4:%d", port, early, port, late, port, well, port, port))
			for _, e := range s.Endpoints {
				r.services[compile.Key(s.Key)] = append(r.services[compile.Key(s.Key)], e.AddrPort())
				r.ids[e.AddrPort()] = uint32(len(r.ids))
			}
			h.probes.add(s)
		}
		h.probes.settle()
		p := NewPassive(h, r)
		p.suspects.most = 1000 // whatever this machine has
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
			return len(h.probes.ejections.now)
		}
		for n, host := range []netip.Addr{early, late} {
			time.Sleep(time.Duration(5*n) * time.Second) // those of before are asked again by then
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
