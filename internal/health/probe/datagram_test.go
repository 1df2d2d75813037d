package probe

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
)

// packets answers datagrams by f; nil: not at all.
func packets(t *testing.T, loopback netip.Addr, f func(question []byte) (answers [][]byte)) netip.AddrPort {
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

// TestDatagram: with a response, an answer that has it in it; without, no error.
func TestDatagram(t *testing.T) {
	both(t, func(t *testing.T, loopback netip.Addr) {
		upper := packets(t, loopback, func(q []byte) [][]byte {
			return [][]byte{[]byte("not yet"), []byte(strings.ToUpper(string(q)))}
		})
		silent := packets(t, loopback, func([]byte) [][]byte { return nil })
		p := lb.Probe{Type: lb.ProbeUDP, Request: "ping", Response: "PING", Timeout: 500 * time.Millisecond}
		good(t, Question{To: upper, Probe: p}, "answered")
		bad(t, Question{To: silent, Probe: p}, "no answer within 500ms")
		bad(t, Question{To: closed(loopback), Probe: p}, "connection refused")
		p.Response = "PONG"
		bad(t, Question{To: upper, Probe: p}, `the answer has no "PONG" in it`)
		p.Response = ""
		good(t, Question{To: upper, Probe: p}, "answered")
		bad(t, Question{To: closed(loopback), Probe: p}, "connection refused")
		if a, err := ask(t, Question{To: silent, Probe: p}); err != nil || a.Delay != 0 ||
			a.What != "nothing came back for 500ms, not even that the port is unreachable" {
			t.Errorf("%+v, %v", a, err)
		}
	})
}
