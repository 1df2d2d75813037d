package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// proxyClient is a client of a service with the PROXY protocol.
type proxyClient struct {
	client, vip, endpoint string
	header                []byte // the first bytes that the endpoint receives
}

// proxyClients returns a client of each IP version, and the victim.
func proxyClients() (v4, v6, other proxyClient) {
	v4 = newProxyClient("1.1.1.1:4000", "10.0.0.1:80", "192.168.1.10:8080")
	v6 = newProxyClient("[2001:db8:100::1]:4000", "[2001:db8::1]:80", "[2001:db8:2::10]:8080")
	return v4, v6, newProxyClient(victim+":4000", "10.0.0.1:80", "192.168.1.10:8080")
}

func newProxyClient(client, vip, endpoint string) proxyClient {
	from, to := netip.MustParseAddrPort(client), netip.MustParseAddrPort(vip)
	family := byte(0x11)
	if from.Addr().Is6() {
		family = 0x21
	}
	addrs := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	header := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21"), family, 0, byte(len(addrs)+4))
	header = append(header, addrs...)
	header = binary.BigEndian.AppendUint16(header, from.Port())
	return proxyClient{client, vip, endpoint, binary.BigEndian.AppendUint16(header, to.Port())}
}

// FuzzProxy sends two segments of a client or an endpoint with any flags, options, numbers and
// data. The endpoint must receive the PROXY header first, and then the client's bytes in order.
func FuzzProxy(f *testing.F) {
	lane := newFuzzWorker(f, lab.Config{}, "10.0.0.1:80/tcp proxy-protocol=true endpoints=192.168.1.10:8080", "[2001:db8::1]:80/tcp proxy-protocol=true endpoints=[2001:db8:2::10]:8080")
	for _, name := range scriptFiles(f, "testdata") {
		if !strings.Contains(name, "proxy") {
			continue
		}
		for _, line := range readScript(f, name).lines {
			p := pkt.Decode(seedFrame(line))
			if p.Proto != pkt.TCP || p.Has(pkt.Frag) || p.Has(pkt.MF) {
				continue
			}
			frame := p.Build()
			tail, server := frame[p.Offset()+12:], strings.Contains(line, " server ")
			f.Add(tail, tail, int32(p.Num(pkt.Seq))-1001, int32(p.Num(pkt.Ack))-5001, server, p.Is6(), false)
			f.Add(tail, tail, int32(p.Num(pkt.Seq))-1001, int32(0), server, p.Is6(), true)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte, seq, ack int32, server, ipv6, known bool) {
		err := lane.do(func(l *lab.Lab) error {
			err := fuzzProxy(l, [][]byte{first, second}, seq, ack, server, ipv6, known)
			return errors.Join(err, checkAllExpire(l))
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// fuzzProxy sends the segments. If known, the endpoint has already acknowledged the header.
func fuzzProxy(l *lab.Lab, tails [][]byte, seq, ack int32, server, ipv6, known bool) error {
	c, c6, other := proxyClients()
	if ipv6 {
		c = c6
	}
	for _, p := range []proxyClient{c, other} {
		if err := handshake(l, p.client, p.vip, p.endpoint); err != nil {
			return err
		}
	}
	if known {
		if _, err := wantOut(l, l.Server, "tcp %s > %s A seq 5001 ack %d", c.endpoint, c.client, 1001+len(c.header)); err != nil {
			return err
		}
	}
	return checkVictimUnchanged(l, func() error {
		for _, tail := range tails {
			if len(tail) < 8 || len(tail) > 1400 {
				continue
			}
			if err := c.segment(l, tail, seq, ack, server, known); err != nil {
				return err
			}
		}
		return c.victimGetsHeader(l, other)
	})
}

// victimGetsHeader checks that the endpoint receives the victim's header.
func (proxyClient) victimGetsHeader(l *lab.Lab, other proxyClient) error {
	line := fmt.Sprintf("tcp %s > %s PA seq 1001 ack 5001 data 00", other.client, other.vip)
	res, err := sendText(l, l.Client, "%s", line)
	if err == nil && res.Verdict != "out" {
		err = fmt.Errorf("%s: %s %s", line, res.Verdict, res.Reason)
	}
	if err != nil {
		return err
	}
	return wantSameData(res.Frame, append(bytes.Clone(other.header), 0))
}

// segment sends a segment. tail is its TCP header from the 13th byte on, and its data.
func (c proxyClient) segment(l *lab.Lab, tail []byte, seq, ack int32, server, known bool) error {
	link, from, to, first := l.Client, c.client, c.vip, [2]uint32{1001, 5001}
	if server {
		link, from, to, first = l.Server, c.endpoint, c.client, [2]uint32{5001, 1001}
	}
	base, err := pkt.Parse(fmt.Sprintf("tcp %s > %s A seq %d ack %d len 0", from, to, first[0]+uint32(seq), first[1]+uint32(ack)))
	if err != nil {
		return err
	}
	base = l.Arriving(link, base)
	frame := withTail(base.Build(), base.Offset(), tail)
	in := pkt.Decode(frame)
	res, err := l.Send(link, frame)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	if res.Verdict == "pass" && !bytes.Equal(res.Frame, frame) {
		return fmt.Errorf("%s passed as %s", in, pkt.Decode(res.Frame))
	}
	if res.Verdict != "out" || res.Reason != "" || l.LinkOf(res.Frame) == link {
		return nil
	}
	before, after := segmentOf(frame), segmentOf(res.Frame)
	switch {
	case after.sum() != 0:
		err = errors.New("its checksum is wrong")
	case server && !bytes.Equal(after.data(), before.data()) && !(before.has(tcpSYN) && len(after.data()) == 0):
		err = errors.New("its data has changed")
	case !server:
		err = c.received(before, after, seq, known)
	}
	if err != nil {
		return fmt.Errorf("%s left as %s: %w", in, pkt.Decode(res.Frame), err)
	}
	return nil
}

// received checks the data that the endpoint receives from a segment of the client.
func (c proxyClient) received(sent, got tcpSegment, seq int32, known bool) error {
	if seq < -1<<30 || seq > 1<<30 {
		return nil // the order of sequence numbers is ambiguous
	}
	if sent.has(tcpSYN) {
		if len(got.data()) > 0 {
			return fmt.Errorf("a SYN has data: %x", got.data())
		}
		return nil
	}
	begin := int(int32(got.seq() - 1001))
	for i, b := range got.data() {
		at := begin + i
		switch own := at - len(c.header) - int(seq); {
		case at < 0, known && at < len(c.header): // the endpoint has it
		case at < len(c.header):
			if b != c.header[at] {
				return fmt.Errorf("byte %d of the header is %x", at, b)
			}
		case own < 0, own >= len(sent.data()), sent.data()[own] != b:
			return fmt.Errorf("byte %d after the header is %x", at-len(c.header), b)
		}
	}
	if last := begin + got.urgent() - 1; !known && got.has(tcpURG) && got.urgent() > 0 && last >= 0 && last < len(c.header) {
		return fmt.Errorf("byte %d of the header is urgent", last)
	}
	return nil
}

const (
	tcpSYN = 0x02
	tcpURG = 0x20
)

// tcpSegment is a segment, beginning with the TCP header, and the pseudo header for its checksum.
type tcpSegment struct{ pseudo, bytes []byte }

// segmentOf returns the segment of a frame without IP options and extension headers.
func segmentOf(frame []byte) tcpSegment {
	ip, addrs := frame[14:], [2]int{12, 20}
	if ip[0]>>4 == 6 {
		addrs = [2]int{8, 40}
	}
	tcp := ip[addrs[1]:]
	pseudo := append(bytes.Clone(ip[addrs[0]:addrs[1]]), 0, 0, 0, 6, 0, 0)
	return tcpSegment{binary.BigEndian.AppendUint16(pseudo, uint16(len(tcp))), tcp}
}

func (t tcpSegment) has(flag byte) bool { return t.bytes[13]&flag != 0 }
func (t tcpSegment) seq() uint32        { return binary.BigEndian.Uint32(t.bytes[4:]) }
func (t tcpSegment) urgent() int        { return int(binary.BigEndian.Uint16(t.bytes[18:])) }
func (t tcpSegment) sum() uint16        { return checksum(append(bytes.Clone(t.pseudo), t.bytes...)) }

// data returns the payload. It is empty if the header is longer than the segment.
func (t tcpSegment) data() []byte { return t.bytes[min(int(t.bytes[12]>>4)*4, len(t.bytes)):] }

// withTail replaces the TCP header from the 13th byte on, and the data. It updates lengths and
// checksums.
func withTail(frame []byte, at int, tail []byte) []byte {
	frame = append(bytes.Clone(frame[:at+12]), tail...)
	length := len(frame) - at
	ip, tcp := frame[14:at], frame[at:]
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+length))
		copy(ip[10:], []byte{0, 0})
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	}
	copy(tcp[16:], []byte{0, 0})
	binary.BigEndian.PutUint16(tcp[16:], segmentOf(frame).sum())
	return frame
}

// checksum returns the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
