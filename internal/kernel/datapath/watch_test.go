package datapath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/observe"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/await"
	"loxilb/test/dptest"
)

// watcher collects events of connections until done.
type watcher struct {
	mu      sync.Mutex
	events  []report.ConnectionEvent
	omitted report.Omitted
	done    func()
}

// watchConnections starts to watch, and waits until the first event.
func watchConnections(t testing.TB, d *Datapath, rate int) *watcher {
	t.Helper()
	w := &watcher{}
	ctx, cancel := context.WithCancel(t.Context())
	began, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.done = func() { cancel(); <-ended }
	t.Cleanup(w.done)
	go func() {
		defer close(ended)
		err := d.WatchConnections(ctx, rate, func(events []report.ConnectionEvent, omitted report.Omitted) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events, w.omitted = append(w.events, events...), omitted
			once.Do(func() { close(began) })
			return true
		})
		if err != nil {
			t.Error(err)
			once.Do(func() { close(began) })
		}
	}()
	<-began
	return w
}

// soFar returns the events so far, and the numbers of omitted ones.
func (w *watcher) soFar() ([]report.ConnectionEvent, report.Omitted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events), w.omitted
}

// wait waits for n events, received or lost, and returns the received ones, and the number of lost
// ones.
func (w *watcher) wait(t testing.TB, n int) ([]report.ConnectionEvent, report.Omitted) {
	t.Helper()
	await.NoError(t, 10*time.Second, func() error {
		if events, omitted := w.soFar(); len(events)+int(omitted.Sampled+omitted.Lost) < n {
			return fmt.Errorf("%d events, and %+v omitted; want %d", len(events), omitted, n)
		}
		return nil
	})
	return w.soFar()
}

// TestWatch checks that a watcher is notified of events of connections, why they end, and which
// side has closed them.
func TestWatch(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	vip, endpoint := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080")
	const length = 100 // length of a segment
	open := func(client netip.AddrPort) [][]byte {
		return [][]byte{
			segment(client, vip, tcpSYN, isn, 0),
			segment(endpoint, client, tcpSYN|tcpACK, isn, isn+1+length),
			segment(client, vip, tcpACK, isn+1+length, isn+1+length),
		}
	}
	for i, c := range []struct {
		name string
		rest func(client netip.AddrPort) [][]byte
		want []string
	}{
		{"closed by the client", func(client netip.AddrPort) [][]byte {
			at := uint32(isn + 1 + 2*length)
			return [][]byte{
				segment(client, vip, tcpFIN|tcpACK, at, at-length),
				segment(endpoint, client, tcpFIN|tcpACK, at-length, at+length+1),
				segment(client, vip, tcpACK, at+length+1, at+1),
			}
		}, []string{"opened", "assured", "closing by client", "ended closed by both", "opened"}},
		{"closed by the endpoint", func(client netip.AddrPort) [][]byte {
			at := uint32(isn + 1 + length)
			return [][]byte{
				segment(endpoint, client, tcpFIN|tcpACK, at, at+length),
				segment(client, vip, tcpFIN|tcpACK, at+length, at+length+1),
				segment(endpoint, client, tcpACK, at+length+1, at+2*length+1),
			}
		}, []string{"opened", "assured", "closing by endpoint", "ended closed by both", "opened"}},
		{"reset by the endpoint", func(client netip.AddrPort) [][]byte {
			return [][]byte{segment(endpoint, client, tcpRST, isn+1+length, 0)}
		}, []string{"opened", "assured", "ended reset by endpoint", "opened"}},
		{"reset by the client", func(client netip.AddrPort) [][]byte {
			return [][]byte{segment(client, vip, tcpRST, isn+1+2*length, 0)}
		}, []string{"opened", "assured", "ended reset by client", "opened"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(2000+i))
			w := watchConnections(t, o.d, 1000)
			// the SYN of the next connection ends the first one
			frames := append(append(open(client), c.rest(client)...), segment(client, vip, tcpSYN, 1<<30, 0))
			for _, f := range frames {
				if _, err := program(t, o.d).Run(&ebpf.RunOptions{Data: f}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			events, _ := w.wait(t, len(c.want))
			for _, e := range events {
				text := e.Act
				if e.Reason != "" {
					text += " " + e.Reason
				}
				if e.By != "" {
					text += " by " + e.By
				}
				got = append(got, text)
				if e.Client != client || e.VIP != vip || e.Source != client || e.Endpoint != endpoint || e.Protocol != lb.TCP ||
					e.Service != "10.0.0.1:80/tcp" || e.OneOf != 1 || time.Since(e.Time).Abs() > time.Minute {
					t.Errorf("got %+v, want e.Client == client, e.VIP == vip, e.Source == client, e.Endpoint == endpoint, "+
						`e.Protocol == lb.TCP, e.Service == "10.0.0.1:80/tcp", e.OneOf == 1, e.Time within a minute`,
						e)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestWatchEnds checks that the sweep also notifies watchers.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	w := watchConnections(t, o.d, 1000)
	o.open(0)
	if err := o.d.Apply([]Change{{Key: compile.Key(o.service.Key)}})[0]; err != nil {
		t.Fatal(err)
	}
	if err := o.d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, _ := w.wait(t, 2)
	if e := events[1]; e.Act != "ended" || e.Reason != "removed" || e.By != "" {
		t.Errorf(`got %+v, want e.Act == "ended", e.Reason == "removed", no e.By`, e)
	}
}

// TestWatchAll opens connections at the highest rate of this machine, and checks that no event is
// lost below the rate that the watcher has declared.
func TestWatchAll(t *testing.T) {
	t.Parallel()
	const flows = 50_000
	d := loadWatched(t)
	w := watchConnections(t, d, observe.WatchRateMax)
	start := time.Now()
	opened := openFlows(t, d, flows)
	took := time.Since(start)
	events, omitted := w.wait(t, opened)
	t.Logf("%d connections, %.0f a second", opened, float64(opened)/took.Seconds())
	seen := map[netip.AddrPort]bool{}
	for _, e := range events {
		seen[e.Client] = e.Act == "opened" && e.OneOf == 1
	}
	if omitted != (report.Omitted{}) || len(seen) != opened || len(events) != opened || opened != flows {
		t.Errorf("%d events of %d connections, %+v omitted; %d of %d were opened", len(events), len(seen), omitted, opened, flows)
	}
}

// TestWatchPressure checks that a watcher that falls behind gets some events, and the number of the
// others. Packets do not wait.
func TestWatchPressure(t *testing.T) {
	t.Parallel()
	const flows = 10_000
	d := loadWatched(t)
	w := watchConnections(t, d, 1)
	w.mu.Lock() // stops reading
	opened := openFlows(t, d, flows)
	w.mu.Unlock()
	events, omitted := w.wait(t, opened)
	if omitted.Sampled == 0 || len(events)+int(omitted.Sampled+omitted.Lost) != opened {
		t.Errorf("%d events, %+v omitted", len(events), omitted)
	}
	if last := events[len(events)-1]; last.OneOf == 1 {
		t.Errorf("got %+v, want last.OneOf != 1", last)
	}
}

// TestWatchers checks that the number of watchers is bounded, and that a place is free again after
// one ends.
func TestWatchers(t *testing.T) {
	t.Parallel()
	d := loadWatched(t)
	all := []*watcher{watchConnections(t, d, 1), watchConnections(t, d, 1), watchConnections(t, d, 1), watchConnections(t, d, 1)}
	none := func([]report.ConnectionEvent, report.Omitted) bool { return false }
	if err := d.WatchConnections(t.Context(), 1, none); !errors.Is(err, observe.ErrTooManyWatchers) {
		t.Errorf("the fifth: %v", err)
	}
	all[1].done()
	if err := d.WatchConnections(t.Context(), 1, none); err != nil {
		t.Error(err)
	}
	openFlows(t, d, 1)
	for i, w := range all {
		if i != 1 {
			w.wait(t, 1)
		}
	}
	if events, _ := all[1].soFar(); len(events) > 0 {
		t.Error("notified after it left")
	}
}

// loadWatched loads a data path with a service of datagrams.
func loadWatched(t testing.TB) *Datapath {
	t.Helper()
	o := newOpener(t, "10.0.0.1:53/udp endpoints=192.0.2.1:53")
	return o.d
}

// openFlows opens flows of different clients in a table with room for them, and returns how many
// were opened.
func openFlows(t testing.TB, d *Datapath, n int) int {
	t.Helper()
	if err := d.MakeTotalRoom(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	p, vip := program(t, d), netip.MustParseAddr("10.0.0.1")
	for i := range n {
		client := netip.AddrFrom4([4]byte{198, 51, byte(i >> 16), byte(i >> 8)})
		if _, err := p.Run(&ebpf.RunOptions{Data: dptest.UDPFrame(client, vip, uint16(1024+i&0xff), 53)}); err != nil {
			t.Fatal(err)
		}
	}
	return len(dptest.Connections(t, d.collection)) / 2
}
