package probe

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"loxilb/internal/lb"
)

// TestPing checks that a thousand simultaneous probes succeed, and that none stays registered. Over
// IPv4, they have a source address.
func TestPing(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		var shared Sockets
		defer shared.Close()
		var all sync.WaitGroup
		for i := range 1000 {
			spec := Spec{To: netip.AddrPortFrom(loopback, 0), Probe: lb.Probe{Type: lb.ProbePing, Timeout: 10 * time.Second}}
			if loopback.Is4() {
				spec.To = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, byte(i >> 8), byte(i)}), 0)
				spec.From = netip.MustParseAddr("127.0.0.77")
			}
			all.Go(func() {
				if a, err := New(spec, &shared, testFiles).Probe(t.Context()); err != nil || a.What != "answered" || a.Delay <= 0 {
					t.Errorf(`%v: got %+v, %v, want no error, a.What == "answered", a.Delay > 0`, spec.To, a, err)
				}
			})
		}
		all.Wait()
		for _, e := range shared.echo {
			if e != nil && len(e.waiting) != 0 {
				t.Errorf("%d requests still wait", len(e.waiting))
			}
		}
	})
}

// TestPingIdentifier checks that the identifier is in the kernel's range of ephemeral ports, which
// clients' connections do not use.
func TestPingIdentifier(t *testing.T) {
	t.Parallel()
	setting, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var first, last uint16
	if _, err := fmt.Sscan(string(setting), &first, &last); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var shared Sockets
		e, err := shared.echoer(false)
		if err != nil {
			t.Fatal(err)
		}
		if e.id < first || e.id > last {
			t.Errorf("the identifier is %d, want one of %d to %d", e.id, first, last)
		}
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPingStrangers checks that packets from another address, with another id, number or token, or
// of another type, are ignored.
func TestPingStrangers(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		e, err := newEchoer(loopback.Is6(), 4711, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer e.conn.Close()
		network := "ip4:icmp"
		if loopback.Is6() {
			network = "ip6:ipv6-icmp"
		}
		stranger, err := net.ListenPacket(network, loopback.String())
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		target := netip.MustParseAddr("192.0.2.1")
		if loopback.Is6() {
			target = netip.MustParseAddr("2001:db8::1")
		}
		fromOther := &pendingEcho{to: target, token: 7, received: make(chan time.Time, 1)}
		fromHere := &pendingEcho{to: loopback, token: 7, received: make(chan time.Time, 1)}
		last := &pendingEcho{to: loopback, token: 7, received: make(chan time.Time, 1)}
		for _, w := range []*pendingEcho{fromOther, fromHere, last} {
			if _, err := e.register(w); err != nil {
				t.Fatal(err)
			}
		}
		reply := func(id uint16, number int, data []byte) {
			t.Helper()
			m := icmp.Message{Type: ipv4.ICMPTypeEchoReply, Body: &icmp.Echo{ID: int(id), Seq: number, Data: data}}
			if loopback.Is6() {
				m.Type = ipv6.ICMPTypeEchoReply
			}
			packet, err := m.Marshal(nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stranger.WriteTo(packet, &net.IPAddr{IP: loopback.AsSlice()}); err != nil {
				t.Fatal(err)
			}
		}
		token := binary.BigEndian.AppendUint64(nil, 7)
		reply(e.id, 1, token)                                   // from another address
		reply(e.id+1, 2, token)                                 // with another identifier
		reply(e.id, 9, token)                                   // with another number
		reply(e.id, 2, binary.BigEndian.AppendUint64(nil, 8))   // with another token
		reply(e.id, 2, nil)                                     // without a token
		reply(e.id, 2, append([]byte("xxxxxxxxxxx"), token...)) // with too much data
		reply(e.id, 3, token)                                   // the only right one
		reply(e.id, 3, token)                                   // a duplicate
		select {
		case <-last.received:
		case <-time.After(10 * time.Second):
			t.Fatal("the right reply was not delivered")
		}
		if len(fromOther.received)+len(fromHere.received) != 0 {
			t.Error("a reply from another address was accepted")
		}
	})
}

// TestPingSilence checks a host that does not answer.
func TestPingSilence(t *testing.T) {
	t.Parallel()
	for _, to := range silentAddresses(t) {
		wantError(t, Spec{To: to, Probe: lb.Probe{Type: lb.ProbePing, Timeout: 200 * time.Millisecond}}, "no answer within 200ms")
	}
}
