package probe

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/lb"
)

// sendUnreachable sends an ICMP error to a socket: it reports port of as unreachable, and quotes a
// datagram with this content.
func sendUnreachable(t *testing.T, to, of netip.AddrPort, quoted []byte) {
	t.Helper()
	six := to.Addr().Is6()
	network, message := "ip4:icmp", []byte{3, 3, 0, 0, 0, 0, 0, 0}
	header := []byte{0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0}
	length := len(quoted) + 8
	if six {
		network, message = "ip6:ipv6-icmp", []byte{1, 4, 0, 0, 0, 0, 0, 0}
		header = binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(length))
		header = append(header, 17, 64)
	} else {
		binary.BigEndian.PutUint16(header[2:], uint16(20+length))
	}
	message = append(append(append(message, header...), to.Addr().AsSlice()...), of.Addr().AsSlice()...)
	message = binary.BigEndian.AppendUint16(message, to.Port())
	message = binary.BigEndian.AppendUint16(message, of.Port())
	message = binary.BigEndian.AppendUint16(message, uint16(length))
	message = append(append(message, 0, 0), quoted...)
	if !six {
		sum := uint32(0)
		for i := 0; i < len(message); i += 2 {
			sum += uint32(message[i])<<8 + uint32(append(message, 0)[i+1])
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(message[2:], ^uint16(sum))
	}
	c, err := net.Dial(network, to.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := c.Write(message); err != nil {
		t.Error(err)
	}
}

// TestForged checks that ICMP errors of an attacker, who knows the address and port of an endpoint
// and tries all ports of this machine, do not make the endpoint down. An error that quotes too
// little counts only if each further datagram, from another port, gets exactly one too. An error
// that quotes other content is ignored.
//
// P45
func TestForged(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		for name, c := range map[string]struct {
			probe lb.Probe
			forge func(n int, question []byte) [][]byte // the contents that the errors for the n-th datagram quote
			want  string                                // the error; "": success; "?": ErrUndecided
		}{
			"another datagram":     {lb.Probe{}, func(int, []byte) [][]byte { return [][]byte{[]byte("loxilb-probe-guess"), []byte("x")} }, ""},
			"nothing":              {lb.Probe{}, func(n int, _ []byte) [][]byte { return [][]byte{nil}[:1-min(n, 1)] }, "?"},
			"nothing, too often":   {lb.Probe{}, func(int, []byte) [][]byte { return [][]byte{nil, nil} }, "?"},
			"a request":            {lb.Probe{Request: "known"}, func(n int, _ []byte) [][]byte { return [][]byte{[]byte("known")}[:1-min(n, 1)] }, "?"},
			"really, and little":   {lb.Probe{}, func(int, []byte) [][]byte { return [][]byte{nil} }, "connection refused"},
			"really, and a part":   {lb.Probe{}, func(_ int, q []byte) [][]byte { return [][]byte{q[:9]} }, "connection refused"},
			"really":               {lb.Probe{}, func(_ int, q []byte) [][]byte { return [][]byte{q} }, "connection refused"},
			"really, of a request": {lb.Probe{Request: "known"}, func(_ int, q []byte) [][]byte { return [][]byte{q} }, "connection refused"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				at := l.LocalAddr().(*net.UDPAddr).AddrPort()
				go func() {
					buf := make([]byte, chunk)
					for i := 0; ; i++ {
						n, from, err := l.ReadFromUDPAddrPort(buf)
						if err != nil {
							return
						}
						for _, quoted := range c.forge(i, buf[:n]) {
							sendUnreachable(t, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), at, quoted)
						}
					}
				}()
				c.probe.Type, c.probe.Timeout, c.probe.Rise, c.probe.Interval = lb.ProbeUDP, time.Second, 2, time.Second
				_, err = probeOnce(t, Spec{To: at, Probe: c.probe})
				switch {
				case c.want == "?" && !errors.Is(err, ErrUndecided), c.want == "" && err != nil,
					len(c.want) > 1 && (err == nil || err.Error() != c.want):
					t.Errorf("the probe ends with %v, want %q; ?: undecided, empty: success", err, c.want)
				}
			})
		}
	})
}

// TestForgedAnswered checks that an answer after an ICMP error is a success.
func TestForgedAnswered(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		at := l.LocalAddr().(*net.UDPAddr).AddrPort()
		go func() {
			buf := make([]byte, chunk)
			n, from, err := l.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			sendUnreachable(t, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), at, buf[:n])
			l.WriteToUDPAddrPort([]byte("late"), from)
		}()
		wantAnswer(t, Spec{To: at, Probe: lb.Probe{Type: lb.ProbeUDP, Request: "known", Response: "late", Timeout: 5 * time.Second}}, "answered")
	})
}
