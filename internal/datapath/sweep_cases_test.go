package datapath

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// TestSweepOrphan: an entry whose other direction is missing goes once it is past its time, and gives a count back only
// if it is the client's.
func TestSweepOrphan(t *testing.T) {
	t.Parallel()
	d, err := Load(Config{Connections: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	now := jiffiesNow(t)
	for _, c := range []struct {
		name   string
		keep   func(flags uint8) bool
		age    uint32 // seconds
		left   int
		active uint64
	}{
		{"client's, young", func(f uint8) bool { return f&1 == 0 }, 100, 10, 10},
		{"client's, old", func(f uint8) bool { return f&1 == 0 }, 8000, 0, 0},
		{"reply's, young", func(f uint8) bool { return f&1 == 1 }, 100, 10, 10},
		{"reply's, old", func(f uint8) bool { return f&1 == 1 }, 8000, 0, 10},
	} {
		fill(t, d, 10, now-c.age*d.hz)
		for key, row := range entries(t, d) {
			if c.keep(row.Flags) {
				continue
			}
			if err := d.obj.Connections.Delete(key); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.obj.EndpointStates.Put(uint32(0), bpf.TcEndpointState{Connections: 10, Active: 10}); err != nil {
			t.Fatal(err)
		}
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var state bpf.TcEndpointState
		if err := d.obj.EndpointStates.Lookup(uint32(0), &state); err != nil {
			t.Fatal(err)
		}
		if left := len(entries(t, d)); left != c.left || state.Active != c.active {
			t.Errorf("%s: %d entries left, %d active; want %d and %d", c.name, left, state.Active, c.left, c.active)
		}
	}
}

// TestSweepUnderTraffic: flows that are dead are opened again while sweeps go over them. None is lost, and the counts
// of active connections stay those of the table.
func TestSweepUnderTraffic(t *testing.T) {
	t.Parallel()
	const flows = 2000
	d, err := Load(Config{Connections: 2 * flows})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	vip := netip.MustParseAddr("10.0.0.1")
	table := bpf.ServiceTable{Key: bpf.TcServiceKey{Vip: bpf.Addr(vip), Port: bpf.Port(53), Protocol: 17}}
	for i := range byte(7) {
		table.Endpoints = append(table.Endpoints, bpf.EndpointTable{Addr: bpf.Addr(netip.AddrFrom4([4]byte{10, 1, 0, i})), Port: bpf.Port(53)})
		table.Slots = append(table.Slots, uint32(i))
	}
	if err := d.Apply([]Change{{table.Key, &table}}); err != nil {
		t.Fatal(err)
	}
	send := func() {
		for i := range uint16(flows) {
			frame := udpFrame(netip.MustParseAddr("10.8.0.1"), vip, 1000+i, 53)
			if _, err := d.obj.LoxilbEther.Run(&ebpf.RunOptions{Data: frame}); err != nil {
				t.Error(err)
			}
		}
	}
	send()
	for range 5 {
		if err := d.Age(time.Hour); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		swept := make(chan error)
		go func() {
			for {
				err := d.Sweep(t.Context())
				select {
				case <-stop:
					swept <- err
					return
				default:
				}
			}
		}()
		send()
		close(stop)
		if err := <-swept; err != nil {
			t.Fatal(err)
		}
		have := map[uint32]uint64{}
		all := entries(t, d)
		for _, row := range all {
			if row.Flags&1 == 0 {
				have[row.Endpoint]++
			}
		}
		if len(all) != 2*flows {
			t.Errorf("%d entries for %d flows", len(all), flows)
		}
		for id := range uint32(len(table.Endpoints)) {
			var state bpf.TcEndpointState
			if err := d.obj.EndpointStates.Lookup(id, &state); err != nil {
				t.Fatal(err)
			}
			if state.Active != have[id] {
				t.Errorf("endpoint %d: %d active, %d in the table", id, state.Active, have[id])
			}
		}
	}
}

// entries reads the connection table.
func entries(t testing.TB, d *Datapath) map[bpf.TcConnectionKey]bpf.TcConnection {
	t.Helper()
	rows, err := d.connectionRows()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// udpFrame is a datagram of 112 bytes without checksum, to the MAC of lo.
func udpFrame(src, dst netip.Addr, sport, dport uint16) []byte {
	f := tcpFrame(src, dst, sport, dport)
	f[14+9] = 17
	udp := f[14+20:]
	clear(udp[4:])
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	return f
}
