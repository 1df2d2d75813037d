package connections

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
)

// Results of LoxilbReset other than an interface (enum reset_result in bpf/sweep/ends.h).
const (
	resetNot  = 0
	resetSent = 1
)

// foundEnd is struct found_end of bpf/abi.h: a connection, as it was when it was found.
type foundEnd struct {
	client, reply  bpf.TcConnectionKey // of its entries
	endpoint, word uint32
}

const (
	generationShift = 24 // STATE_GENERATION_SHIFT of bpf/abi.h
	// generation has the bits of an entry's word that differ for another connection with the same
	// addresses and ports.
	generation = uint32(0xff) << generationShift
	closed     = uint32(bpf.TcConnectionFlagCONN_RESET)
)

// wordOf returns the relevant part of an entry's word.
func wordOf(r *bpf.TcConnection) uint32 { return uint32(r.Generation) << generationShift }

// endTarget passes a program the connection to end (struct end_target of bpf/sweep/ends.h): the
// keys may belong to another connection by now. mask has the bits of its word that then differ.
func endTarget(endpoint, word, mask uint32) testrun.SKB {
	return testrun.SKB{CB: [5]uint32{endpoint, word, mask}}
}

// resetBoth sends both ends of a connection a RST or ABORT that appears to come from the other, and
// reports whether both were sent.
func (t *Table) resetBoth(e *foundEnd, mask uint32) (bool, error) {
	for _, key := range [...]bpf.TcConnectionKey{e.client, e.reply} {
		if sent, err := t.reset(key, endTarget(e.endpoint, e.word, mask)); err != nil || !sent {
			return false, err
		}
	}
	return true, nil
}

// reset injects a RST or ABORT that appears to come from the sender of packets with this key.
func (t *Table) reset(key bpf.TcConnectionKey, skb testrun.SKB) (bool, error) {
	frame := resetFrame(key)
	out := make([]byte, len(frame))
	find := &ebpf.RunOptions{Data: frame, DataOut: out, Context: skb}
	wanted, err := t.programs.run(sendReset, find)
	if err != nil {
		return false, fmt.Errorf("find where the packets of a connection arrive: %w", err)
	}
	ifindex, mac, ok := t.hooks.Arrival(int(int32(wanted)))
	if wanted == resetNot || !ok {
		return false, nil
	}
	if key.Protocol == uint8(lb.SCTP) {
		frame = sealAbort(find.DataOut)
	}
	copy(frame, mac)
	skb.Mark = uint32(ifindex)
	sent, err := t.programs.run(sendReset, &ebpf.RunOptions{Data: frame, Context: skb})
	if err != nil {
		return false, fmt.Errorf("send a reset in the name of the end of a connection: %w", err)
	}
	return sent == resetSent, nil
}

const (
	etherBytes = 14
	tcpBytes   = 20
	protoTCP   = 6
	hopLimit   = 64
	flagRST    = 0x04
)

// resetFrame returns a RST with sequence number 0, or an ABORT with tag 0, complete except for the
// number or tag, and the destination MAC address.
func resetFrame(key bpf.TcConnectionKey) []byte {
	src, dst := bpf.AddrPort(key.Saddr, key.Sport), bpf.AddrPort(key.Daddr, key.Dport)
	if key.Protocol == uint8(lb.SCTP) {
		return ipFrame(src.Addr(), dst.Addr(), key.Protocol, abort(src.Port(), dst.Port()))
	}
	tcp := make([]byte, tcpBytes)
	binary.BigEndian.PutUint16(tcp, src.Port())
	binary.BigEndian.PutUint16(tcp[2:], dst.Port())
	tcp[12], tcp[13] = tcpBytes/4<<4, flagRST
	addresses := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(tcp[16:], ^sum(addresses, []byte{0, protoTCP, 0, tcpBytes}, tcp))
	return ipFrame(src.Addr(), dst.Addr(), protoTCP, tcp)
}

// ipFrame puts headers in front of a payload, without MAC addresses.
func ipFrame(src, dst netip.Addr, protocol uint8, payload []byte) []byte {
	addresses := append(src.AsSlice(), dst.AsSlice()...)
	frame := make([]byte, etherBytes, etherBytes+40+len(payload))
	length := byte(len(payload))
	if src.Is4() {
		binary.BigEndian.PutUint16(frame[12:], 0x0800)
		ip := append([]byte{0x45, 0, 0, 20 + length, 0, 0, 0x40, 0, hopLimit, protocol, 0, 0}, addresses...)
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
		frame = append(frame, ip...)
	} else {
		binary.BigEndian.PutUint16(frame[12:], 0x86dd)
		frame = append(append(frame, 0x60, 0, 0, 0, 0, length, protocol, hopLimit), addresses...)
	}
	return append(frame, payload...)
}

// sum returns the ones' complement sum of pieces of even length (RFC 1071).
func sum(pieces ...[]byte) uint16 {
	var n uint32
	for _, p := range pieces {
		for i := 0; i < len(p); i += 2 {
			n += uint32(binary.BigEndian.Uint16(p[i:]))
		}
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return uint16(n)
}
