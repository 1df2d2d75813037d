package main

import (
	"fmt"
	"net"
	"net/netip"

	"loxilb/internal/pkt"
)

// The generator's frames are the smallest that Ethernet has, without the check sum of 4 bytes that
// a card adds.
const frameSize = 60

// frameMark is the IP identification of the generator's packets, by which sinks know them.
const frameMark = 0xbe7c

// flow is where a generated packet comes from and goes to, and its place in a TCP connection.
type flow struct {
	from, to netip.AddrPort
	tcp      bool
	seq, ack uint32
}

// frame returns a flow's packet: an acknowledgement of TCP without options, or 18 bytes of UDP,
// with right sums.
func (f flow) frame(src, dst net.HardwareAddr) (out [frameSize]byte, err error) {
	line := fmt.Sprintf("udp %v > %v len 18", f.from, f.to)
	if f.tcp {
		line = fmt.Sprintf("tcp %v > %v A seq %d ack %d win 1000 pad 6", f.from, f.to, f.seq, f.ack)
	}
	p, err := pkt.Parse(fmt.Sprintf("%s ipid %d from %v to %v", line, frameMark, src, dst))
	if err != nil {
		return out, err
	}
	if n := copy(out[:], p.Build()); n != frameSize {
		return out, fmt.Errorf("a frame has %d bytes, not %d", n, frameSize)
	}
	return out, nil
}

// manyFlows are n UDP flows from many ports of many addresses behind the client: 10.99.0.0/16.
func manyFlows(n int, to netip.AddrPort) []flow {
	const perAddress, firstPort = 50_000, 2000
	out := make([]flow, n)
	for i := range out {
		a := i / perAddress
		from := netip.AddrFrom4([4]byte{10, 99, byte(a >> 8), byte(a)})
		out[i] = flow{from: netip.AddrPortFrom(from, uint16(firstPort+i%perAddress)), to: to}
	}
	return out
}
