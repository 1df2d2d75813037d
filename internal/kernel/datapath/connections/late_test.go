package connections

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// countingHooks counts attempts to send a RST, and has no interface for them.
type countingHooks struct {
	noHooks
	asked int
}

func (h *countingHooks) Arrival(wanted int) (int, net.HardwareAddr, bool) {
	if wanted != resetNot {
		h.asked++
	}
	return 0, nil, false
}

// dialer is a client that repeatedly connects to a service of one endpoint from the same port.
type dialer struct {
	*Table
	t                     *testing.T
	hooks                 *countingHooks
	program               *ebpf.Program
	client, vip, endpoint netip.AddrPort
	began                 uint32 // the sequence number of its SYN
}

func newDialer(t *testing.T) *dialer {
	d := &dialer{
		Table: open(t, loader.Settings{Connections: 1024, IdleResets: 100}), t: t, hooks: &countingHooks{},
		client: netip.MustParseAddrPort("198.51.100.1:2000"), vip: netip.MustParseAddrPort("10.0.0.1:80"), endpoint: netip.MustParseAddrPort("10.1.0.1:80"),
	}
	d.Table.hooks, d.program = d.hooks, d.Table.program(t)
	d.serve(t, uint8(lb.TCP), d.vip, d.endpoint.Addr())
	d.dial()
	return d
}

// dial opens a connection with known sequence numbers.
func (d *dialer) dial() {
	const syn, ack, payload = 0x02, 0x10, 100
	d.began += 1 << 20
	ours, theirs := d.began+1+payload, d.began+1000+1+payload
	for _, frame := range [][]byte{
		dptest.Segment(d.client, d.vip, syn, d.began, 0),
		dptest.Segment(d.endpoint, d.client, syn|ack, d.began+1000, ours),
		dptest.Segment(d.client, d.vip, ack, ours, theirs),
		dptest.Segment(d.endpoint, d.client, ack, theirs, ours+payload),
	} {
		if _, err := d.program.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			d.t.Fatal(err)
		}
	}
	rows := dptest.Connections(d.t, d.shared)
	for k, row := range rows {
		if name := stateName(k.Protocol, row.Flags); name != "est" || len(rows) != 2 {
			d.t.Fatalf("among %d entries one is %s", len(rows), name)
		}
	}
}

// age makes the connection idle for a day.
func (d *dialer) age() {
	d.change(func(row *bpf.TcConnection) { row.Seen -= d.shared.Jiffies(24 * time.Hour) })
}

func (d *dialer) change(f func(*bpf.TcConnection)) {
	d.t.Helper()
	err := dptest.ChangeConnections(d.shared.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
		f(row)
		return true
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// sweep does the kernel's part of a sweep.
func (d *dialer) sweep() {
	buckets, err := d.shared.Conntrack.Buckets()
	for next := uint32(0); err == nil && next < buckets; {
		next, err = d.runMarked(sweepRows, next)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestLateIdleEnd checks that an idle timeout is notified only to the connection that it belongs
// to, and not to a later one with the same addresses and ports, however long the daemon was halted
// meanwhile.
func TestLateIdleEnd(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		d := newDialer(t)
		d.age()
		d.sweep()
		if again {
			d.dial()
		}
		d.resetIdle()
		if notified := d.hooks.asked > 0; notified == again {
			t.Errorf("dialled again: %t; a RST was to be sent: %t", again, notified)
		}
	}
}

// TestLateEnd checks that ending a connection that a walk or kill ct has found does not end a later
// one with the same addresses and ports, neither by RSTs nor silently.
func TestLateEnd(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		d := newDialer(t)
		found, err := d.walk(t.Context(), []tables.DueEndpoint{{ID: 0, Tracked: 1}})
		if err != nil || len(found[0]) != 1 {
			t.Fatalf("got %v, %v, want no error, 1 element in found[0]", found, err)
		}
		if again {
			d.age()
			d.sweep()
			d.dial()
		}
		var done report.Ended
		if err := d.endBoth(found[0][0], &done); err != nil {
			t.Fatal(err)
		}
		if ended := d.hooks.asked > 0 || done.Silent > 0; ended == again {
			t.Errorf("dialled again: %t; %d RSTs were to be sent, and %+v ended", again, d.hooks.asked, done)
		}
	}
}
