package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
)

// serveDatagrams runs a UDP server that answers each datagram with the results of f.
func serveDatagrams(t *testing.T, loopback netip.Addr, f func(question []byte) (answers [][]byte)) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			for _, answer := range f(buf[:n]) {
				c.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// TestDatagram checks that an answer must contain the expected response, and that without one any
// result except an ICMP error is a success.
func TestDatagram(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		upper := serveDatagrams(t, loopback, func(q []byte) [][]byte {
			return [][]byte{[]byte("not yet"), []byte(strings.ToUpper(string(q)))}
		})
		silent := serveDatagrams(t, loopback, func([]byte) [][]byte { return nil })
		p := lb.Probe{Type: lb.ProbeUDP, Request: "ping", Response: "PING", Timeout: 500 * time.Millisecond}
		wantAnswer(t, Spec{To: upper, Probe: p}, "answered")
		wantError(t, Spec{To: silent, Probe: p}, "no answer within 500ms")
		wantError(t, Spec{To: closedPort(loopback), Probe: p}, "connection refused")
		p.Response = "PONG"
		wantError(t, Spec{To: upper, Probe: p}, `the answer does not contain "PONG"`)
		p.Response = ""
		wantAnswer(t, Spec{To: upper, Probe: p}, "answered")
		wantError(t, Spec{To: closedPort(loopback), Probe: p}, "connection refused")
		if a, err := probeOnce(t, Spec{To: silent, Probe: p}); err != nil || a.Delay != 0 ||
			a.What != "neither a reply nor an ICMP error within 500ms" {
			t.Errorf("got %+v, %v, want no error, a.Delay == 0, "+
				`a.What == "neither a reply nor an ICMP error within 500ms"`,
				a, err)
		}
	})
}

// TestDatagramDoubt checks that silence soon after an ICMP error is neither success nor failure, as
// hosts limit the rate of these errors. An answer is a success at any time.
func TestDatagramDoubt(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		quiet := serveDatagrams(t, loopback, func([]byte) [][]byte { return nil })
		echo := serveDatagrams(t, loopback, func(q []byte) [][]byte { return [][]byte{q} })
		p := lb.Probe{Type: lb.ProbeUDP, Request: "ping", Timeout: 100 * time.Millisecond, Interval: time.Second, Rise: 2}
		d := newUDP(Spec{Probe: p})
		send := func(to netip.AddrPort) (Answer, error) {
			d.spec.To = to
			ctx, cancel := context.WithTimeout(t.Context(), p.Timeout)
			defer cancel()
			return d.Probe(ctx)
		}
		if a, err := send(quiet); err != nil {
			t.Errorf("%+v, %v before any error", a, err)
		}
		if _, err := send(closedPort(loopback)); err == nil || err.Error() != "connection refused" {
			t.Errorf(`got %v, want an error, the error "connection refused"`, err)
		}
		if a, err := send(quiet); !errors.Is(err, ErrUndecided) ||
			err.Error() != "no reply within 100ms, which is inconclusive: the port was unreachable less than 10s ago" {
			t.Errorf(`got %+v, %v, want the error ErrUndecided, the error "no reply within 100ms, `+
				`which is inconclusive: the port was unreachable less than 10s ago"`,
				a, err)
		}
		before := d
		d = newUDP(before.spec) // another request from here on
		TransferState(before, d)
		if a, err := send(quiet); !errors.Is(err, ErrUndecided) {
			t.Errorf("%+v, %v of another request", a, err)
		}
		if a, err := send(echo); err != nil || a.What != "answered" {
			t.Errorf(`got %+v, %v, want no error, a.What == "answered"`, a, err)
		}
		long := time.Now().Add(-silenceDoubt)
		d.refused.Store(&long)
		if a, err := send(quiet); err != nil {
			t.Errorf("got %+v, %v long after the last ICMP error", a, err)
		}
		d.spec.Probe.Interval = time.Minute
		if a, err := send(quiet); !errors.Is(err, ErrUndecided) {
			t.Errorf("%+v, %v within two intervals", a, err)
		}
	})
}
