package probe

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"loxilb/internal/lb"
)

// fakeSCTP is a server that answers each INIT with packets that the test chooses, and reports the
// ABORTs that it receives.
type fakeSCTP struct {
	conn    *net.IPConn
	aborted chan uint32 // verification tags
}

const fakeTag = 0x1234567

func serveFakeSCTP(t *testing.T, at netip.AddrPort, answers func(sport, dport uint16, tag uint32) [][]byte) *fakeSCTP {
	t.Helper()
	network := "ip4:132"
	if at.Addr().Is6() {
		network = "ip6:132"
	}
	c, err := net.ListenPacket(network, at.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	f := &fakeSCTP{c.(*net.IPConn), make(chan uint32, 10)}
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := f.conn.ReadFromIP(buf)
			if err != nil {
				return
			}
			p := buf[:n]
			if n < 16 || binary.BigEndian.Uint16(p[2:]) != at.Port() {
				continue
			}
			sum := binary.LittleEndian.Uint32(p[8:])
			clear(p[8:12])
			if crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) != sum {
				t.Error("a packet of the probe has a wrong checksum")
			}
			tag := binary.BigEndian.Uint32(p[4:])
			if p[12] == sctpAbort {
				f.aborted <- tag
			}
			if p[12] != sctpInit {
				continue
			}
			if tag != 0 {
				t.Errorf("INIT has tag %#x", tag)
			}
			for _, a := range answers(at.Port(), binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[16:])) {
				if _, err := f.conn.WriteToIP(a, from); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	return f
}

// initAck returns the INIT ACK of a server whose tag is fakeTag.
func initAck(sport, dport uint16, tag uint32) []byte {
	c := append([]byte{sctpInitAck, 0, 0, sctpInitBytes}, make([]byte, sctpInitBytes-sctpChunk)...)
	binary.BigEndian.PutUint32(c[sctpChunk:], fakeTag)
	return sctpPacket(sport, dport, tag, c)
}

// TestAssociation checks the answers to an INIT. INIT ACK is a success, and the reply is an ABORT
// with the server's tag. ABORT is an immediate failure. Other packets are ignored, including ABORTs
// and INIT ACKs with another tag or from another port.
func TestAssociation(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		for i, tc := range []struct {
			name, want string // want: the failure; "": success
			answers    func(sport, dport uint16, tag uint32) [][]byte
		}{
			{"up", "", func(s, d uint16, tag uint32) [][]byte { return [][]byte{initAck(s, d, tag)} }},
			{"aborted", "refused the association (ABORT)", func(s, d uint16, tag uint32) [][]byte {
				return [][]byte{abortPacket(s, d, tag)}
			}},
			{"strangers", "no answer within 300ms", func(s, d uint16, tag uint32) [][]byte {
				reflected := abortPacket(s, d, tag)
				reflected[sctpHeader+1] = sctpReflected
				return [][]byte{
					initAck(s, d, tag+1), initAck(s+1, d, tag), abortPacket(s, d, 0), reflected,
					initAck(s, d, tag)[:sctpHeader+sctpInitBytes-1], abortPacket(s, d, tag)[:sctpHeader],
					sctpPacket(s, d, tag, []byte{0, 0, 0, 4}), {1, 2},
				}
			}},
			{"silent", "no answer within 300ms", func(uint16, uint16, uint32) [][]byte { return nil }},
		} {
			at := netip.AddrPortFrom(loopback, uint16(1000+i))
			f := serveFakeSCTP(t, at, tc.answers)
			spec := Spec{To: at, Probe: lb.Probe{Type: lb.ProbeSCTP, Timeout: 10 * time.Second}}
			if strings.HasPrefix(tc.want, "no answer") {
				spec.Probe.Timeout = 300 * time.Millisecond
			}
			a, err := probeOnce(t, spec)
			switch {
			case tc.want == "" && (err != nil || a.Delay <= 0):
				t.Errorf("%s: got %+v, %v, want success with a delay", tc.name, a, err)
			case tc.want != "" && (err == nil || err.Error() != tc.want || errors.Is(err, ErrNotSent)):
				t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
			}
			if tc.want == "" {
				f.wantAbort(t)
			}
		}
	})
}

func (f *fakeSCTP) wantAbort(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case tag := <-f.aborted:
		if tag != fakeTag {
			t.Errorf("INIT ACK is answered by an ABORT with tag %#x, not %#x", tag, fakeTag)
		}
	case <-ctx.Done():
		t.Error("INIT ACK is not answered by an ABORT")
	}
}

// TestNoSCTP checks that a probe of a host without SCTP reports the ICMP error, and that ICMP
// errors with another tag or code are ignored.
func TestNoSCTP(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		for i, tc := range []struct {
			name, want string
			code       int // 0: the right one
			tag        uint32
		}{
			{"refused", "the host has no SCTP (ICMP protocol unreachable)", 0, 0},
			{"another tag", "no answer within 300ms", 0, 1},
			{"another code", "no answer within 300ms", 3, 0},
		} {
			at := netip.AddrPortFrom(loopback, uint16(1100+i))
			serveFakeSCTP(t, at, func(sport, dport uint16, tag uint32) [][]byte {
				refuseProtocol(t, loopback, initPacket(dport, sport, tag+tc.tag), tc.code)
				return nil
			})
			spec := Spec{To: at, Probe: lb.Probe{Type: lb.ProbeSCTP, Timeout: 10 * time.Second}}
			if strings.HasPrefix(tc.want, "no answer") {
				spec.Probe.Timeout = 300 * time.Millisecond
			}
			if _, err := probeOnce(t, spec); err == nil || err.Error() != tc.want || errors.Is(err, ErrNotSent) {
				t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
			}
		}
	})
}

// refuseProtocol sends the ICMP error of a host that lacks the packet's protocol.
func refuseProtocol(t *testing.T, to netip.Addr, packet []byte, code int) {
	t.Helper()
	network, header := "ip4:icmp", make([]byte, ipv4.HeaderLen)
	m := icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Code: cmp.Or(code, protocolUnreachable)}
	if to.Is6() {
		network, header = "ip6:ipv6-icmp", make([]byte, ipv6.HeaderLen)
		m = icmp.Message{Type: ipv6.ICMPTypeParameterProblem, Code: cmp.Or(code, unknownNextHeader)}
		m.Body = &icmp.ParamProb{Pointer: 6, Data: append(header, packet...)}
	} else {
		m.Body = &icmp.DstUnreach{Data: append(header, packet...)}
	}
	data, err := m.Marshal(nil)
	if err != nil {
		t.Error(err)
		return
	}
	c, err := net.ListenPacket(network, to.String())
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := c.WriteTo(data, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		t.Error(err)
	}
}
