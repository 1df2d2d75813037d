package health_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/faulty"
	"loxilb/test/netnstest/labtest"
)

// wireRig is a rig whose hosts are connected to the balancer by faulty wires.
type wireRig struct {
	*rig.Rig
	wires map[string]*faulty.Wire // by name of the host
}

func newWireRig(t testing.TB, o rig.Options) *wireRig {
	t.Helper()
	const seed = 1
	w := &wireRig{wires: map[string]*faulty.Wire{}}
	o.Link = func(l *netnstest.Lab, a, b netnstest.End, mtu int) (err error) {
		w.wires[a.Host.Name], err = faulty.Join(l, a, b, mtu, seed+uint64(len(w.wires)))
		return err
	}
	w.Rig = rig.New(t, o)
	return w
}

// setFaults sets the faults of every wire, in both directions.
func (w *wireRig) setFaults(f faulty.Faults) {
	w.T.Helper()
	for _, each := range w.wires {
		if err := each.Set(f); err != nil {
			w.T.Fatal(err)
		}
	}
}

// setCorruption flips a bit in a share of the packets to the balancer. Packets from the balancer
// stay intact: two flipped bits can cancel each other in a checksum.
func (w *wireRig) setCorruption(share float64) {
	w.T.Helper()
	for _, each := range w.wires {
		if err := each.Forward.Set(faulty.Faults{Corrupt: share}); err != nil {
			w.T.Fatal(err)
		}
	}
}

// counts returns the sum of the counts of all wires, in both directions.
func (w *wireRig) counts() (sum faulty.Counts) {
	w.T.Helper()
	for _, each := range w.wires {
		for _, d := range []*faulty.Direction{each.Forward, each.Reverse} {
			c, err := d.Counts()
			if err != nil {
				w.T.Fatal(err)
			}
			sum.Packets += c.Packets
			sum.Lost += c.Lost
			sum.Duplicated += c.Duplicated
			sum.Delayed += c.Delayed
			sum.Corrupted += c.Corrupted
		}
	}
	return sum
}

// internetFaults returns faults like those of a long path through the Internet.
func internetFaults() faulty.Faults {
	return faulty.Faults{Loss: 0.01, Duplicate: 0.01, Delay: 0.02, DelayTime: 3 * time.Millisecond}
}

// faultyServices creates a service of each mode, of both IP versions and with both at the
// endpoints, and returns their addresses.
func faultyServices(r *rig.Rig, protocol string, port int) (at []string) {
	r.T.Helper()
	first := 9000
	add := func(vip, endpoint, mode string) {
		first++
		address := vip
		if mode == "hostonearm" {
			vip, address = "0.0.0.0", "100.100.100.254"
		}
		r.Loxicmd("create lb %s --%s=%d:%d --endpoints=%s:1 --probetype=none --mode=%s", vip, protocol, first, port, endpoint, mode)
		at = append(at, rig.Join(address, first))
	}
	for _, mode := range []string{"default", "onearm", "fullnat", "hostonearm"} {
		add(rig.VIP4, "31.31.31.1", mode)
	}
	add(rig.VIP6, "[2001:db8:32::1]", "default")
	add(rig.VIP6, "[2001:db8:32::1]", "fullnat")
	add(rig.VIP4, "[2001:db8:17::1]", "onearm")
	add(rig.VIP6, "17.17.17.1", "onearm")
	return at
}

// TestFaultyTransfers transfers megabytes in both directions, in each mode, over wires that lose,
// duplicate and delay packets.
//
// P23 Over links that lose, duplicate and reorder packets, transfers are complete and intact, in
// each mode
func TestFaultyTransfers(t *testing.T) {
	t.Parallel()
	const bytes = 10 << 20
	for name, prepare := range map[string]func(testing.TB, *netnstest.Standard){"translated": nil, "dsr": rig.ConfigureDirectReturn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWireRig(t, rig.Options{Before: prepare})
			for _, h := range w.Endpoints {
				if err := h.ServeTCP(":5001", rig.ServeTransfer(bytes)); err != nil {
					t.Fatal(err)
				}
			}
			var at []string
			if name == "dsr" {
				w.Loxicmd("create lb %s --tcp=5001:5001 --endpoints=%s --mode=dsr", rig.VIP4, rig.Endpoints4())
				w.Loxicmd("create lb %s --tcp=5001:5001 --endpoints=%s --mode=dsr", rig.VIP6, rig.Endpoints6())
				at = []string{rig.Join(rig.VIP4, 5001), rig.Join(rig.VIP6, 5001)}
			} else {
				at = faultyServices(w.Rig, "tcp", 5001)
			}
			w.setFaults(internetFaults())
			for _, address := range at {
				start := time.Now()
				if err := rig.Transfer(w.Dial(address), bytes); err != nil {
					t.Errorf("%s: %v", address, err)
				}
				t.Logf("%s: %v", address, time.Since(start).Round(time.Millisecond))
			}
			if c := w.counts(); c.Lost == 0 || c.Duplicated == 0 || c.Delayed == 0 {
				t.Errorf("faults were %+v", c)
			} else {
				t.Logf("%+v", c)
			}
		})
	}
}

// withChecksum returns the datagram of a number. Its checksum lets the receiver detect damage.
func withChecksum(n uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, n)
	b = append(b, make([]byte, 100)...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func isIntact(b []byte) bool {
	return len(b) > 8 && slices.Equal(b, withChecksum(binary.BigEndian.Uint32(b)))
}

// TestCorruption checks that no application receives a packet with a bit flipped before the
// balancer. The balancer changes addresses, ports and sometimes the IP version, and updates
// checksums incrementally, so a wrong checksum stays wrong.
//
// P24 A damaged packet never gets a valid checksum
func TestCorruption(t *testing.T) {
	t.Parallel()
	w := newWireRig(t, rig.Options{})
	var intact, damaged atomic.Int64
	for _, h := range w.Endpoints {
		p, err := h.ListenPacket("udp", ":5353")
		if err != nil {
			t.Fatal(err)
		}
		w.Lab.Cleanup(func() { _ = p.Close() })
		go func() {
			buf := make([]byte, 2048)
			for {
				n, from, err := p.ReadFrom(buf)
				if err != nil {
					return
				}
				if isIntact(buf[:n]) {
					intact.Add(1)
				} else {
					damaged.Add(1)
				}
				_, _ = p.WriteTo(buf[:n], from)
			}
		}()
	}
	at := faultyServices(w.Rig, "udp", 5353)
	w.setCorruption(0.5)
	for _, address := range at {
		w.exchangeDatagrams(address, 500)
	}
	c := w.counts()
	if damaged.Load() > 0 {
		t.Errorf("endpoints have received %d damaged datagrams", damaged.Load())
	}
	if intact.Load() < 500 || c.Corrupted < 500 {
		t.Errorf("endpoints have received %d intact datagrams, want at least 500; %+v", intact.Load(), c)
	}
	t.Logf("%d intact; %+v", intact.Load(), c)

	const bytes = 2 << 20
	for _, h := range w.Endpoints {
		if err := h.ServeTCP(":5001", rig.ServeTransfer(bytes)); err != nil {
			t.Fatal(err)
		}
	}
	w.setCorruption(0.01)
	for _, address := range faultyServices(w.Rig, "tcp", 5001) {
		if err := rig.Transfer(w.Dial(address), bytes); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// exchangeDatagrams sends the given number of datagrams to an address, and more until a reply
// arrives: damaged packets may delay neighbor discovery for some seconds. The test fails if a
// damaged reply arrives, or no reply.
func (w *wireRig) exchangeDatagrams(address string, datagrams int) {
	w.T.Helper()
	c := rig.DialUDP(w.T, w.Rig, address)
	replies := 0
	buf := make([]byte, 2048)
	end := time.Now().Add(20 * time.Second)
	for n := 0; n < datagrams || replies == 0 && time.Now().Before(end); n++ {
		if _, err := c.Write(withChecksum(uint32(n))); err != nil { // an ICMP error, if a port was damaged
			continue
		}
		if err := c.SetReadDeadline(time.Now().Add(2 * time.Millisecond)); err != nil {
			w.T.Fatal(err)
		}
		got, err := c.Read(buf)
		if err != nil {
			continue
		}
		replies++
		if !isIntact(buf[:got]) {
			w.T.Errorf("%s: a damaged answer of %d bytes", address, got)
		}
	}
	if replies == 0 {
		w.T.Errorf("%s: no answer", address)
	}
}

// TestPartition disconnects an endpoint for three seconds, with and without probes that detect it.
// Its connections wait and continue. Connections of other endpoints are not affected.
//
// P25 An endpoint that is unreachable for some seconds keeps its connections
func TestPartition(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]string{"alone": " --probetype=none", "probed": " --monitor --probe-interval=200ms"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWireRig(t, rig.Options{})
			rig.ServeEcho(w.Rig)
			w.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s%s", rig.VIP4, rig.Endpoints4(), flags)
			w.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s --mode=fullnat%s", rig.VIP6, rig.Endpoints6(), flags)
			four, six := rig.StartTraffic(w.Rig, rig.Join(rig.VIP4, 7), 9), rig.StartTraffic(w.Rig, rig.Join(rig.VIP6, 7), 9)
			four.AwaitLines(t, 9)
			if err := w.wires["ep1"].SetCut(true); err != nil {
				t.Fatal(err)
			}
			healed := time.After(3 * time.Second)
			if name == "probed" {
				w.EventuallyShows("get ep", "31.31.31.1", "down")
			}
			<-healed
			if err := w.wires["ep1"].SetCut(false); err != nil {
				t.Fatal(err)
			}
			for _, f := range []*rig.Traffic{four, six} {
				f.AwaitLines(t, 9)
				if err := f.Finish(); err != nil { // fails if a connection waited for longer than patience
					t.Error(err)
				}
			}
		})
	}
}

// TestLossyHandshakes checks that every connection opens and carries data although a fifth of the
// packets is lost in each direction, also if the balancer challenges the client.
//
// P26 Connections open while a fifth of all packets is lost
func TestLossyHandshakes(t *testing.T) {
	t.Parallel()
	const connections = 30
	w := newWireRig(t, rig.Options{})
	rig.ServeEcho(w.Rig)
	var at []string
	for i, flags := range []string{"", " --mode=fullnat", " --syn-protect=always"} {
		w.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s%s", rig.VIP4, 70+i, rig.Endpoints4(), flags)
		at = append(at, rig.Join(rig.VIP4, 70+i))
	}
	if err := w.wires["client"].Set(faulty.Faults{Loss: 0.2}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for i := range connections {
		for _, address := range at {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c, err := w.Client.DialContext(ctx, "tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if err := patientExchange(c, fmt.Sprintf("connection %d\n", i)); err != nil {
					t.Errorf("%s: %v", address, err)
				}
			})
		}
	}
	running.Wait()
	t.Logf("%+v", w.counts())
}

// TestFaultyCounts checks that duplicates and retransmissions do not count as connections, and that
// every connection that both sides have closed is counted as ended.
//
// P14
func TestFaultyCounts(t *testing.T) {
	t.Parallel()
	const connections = 60
	w := newWireRig(t, rig.Options{})
	rig.ServeEcho(w.Rig)
	at := faultyServices(w.Rig, "tcp", 7)
	w.setFaults(faulty.Faults{Loss: 0.02, Duplicate: 0.3})
	var running sync.WaitGroup
	for _, address := range at {
		running.Go(func() {
			for i := range connections {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				c, err := w.Client.DialContext(ctx, "tcp", address)
				cancel()
				if err == nil {
					err = errors.Join(patientExchange(c, fmt.Sprintf("connection %d\n", i)), c.Close())
				}
				if err != nil {
					t.Errorf("%s: %v", address, err)
					return
				}
			}
		})
	}
	running.Wait()
	w.setFaults(faulty.Faults{})
	for _, address := range at {
		if strings.HasPrefix(address, "100.") { // the service with all local addresses
			address = strings.Replace(address, "100.100.100.254", "0.0.0.0", 1)
		}
		if n := w.Metric("service_connections_total", "service="+address+"/tcp"); n != connections {
			t.Errorf("%s: %v connections are counted, %d were opened", address, n, connections)
		}
	}
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		out := w.Loxicmd("get ct")
		if all, closed := strings.Count(out, "/tcp "), strings.Count(out, "closed "); all != closed {
			return fmt.Errorf("%d entries, %d of them closed:\n%s", all, closed, out)
		}
		return nil
	})
	t.Logf("%+v", w.counts())
}

// patientExchange sends a line and waits up to a minute for its echo.
func patientExchange(c net.Conn, line string) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(line)); err != nil {
		return err
	}
	var got strings.Builder
	buf := make([]byte, len(line))
	for got.Len() < len(line) {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		got.Write(buf[:n])
	}
	if got.String() != line {
		return fmt.Errorf("sent %q, got %q back", line, got.String())
	}
	return nil
}
