package attach_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// FuzzGTP checks that any datagram to the port of GTP-U stays unchanged, or that its end leaves the
// tunnel as a packet of the tunnel's user to the classified address.
func FuzzGTP(f *testing.F) {
	g := loadGTP(f)
	for _, header := range []string{
		gtpHeader(0x30, 255, 9, ""), gtpHeader(0x32, 255, 9, "00010000"), gtpHeader(0x34, 255, 9, "00000085"+"01101000"), gtpHeader(0x30, 255, 10, ""),
		gtpHeader(0x34, 255, 9, "00000085"+"01101085"+"0200000000000085"+"01101085"+"01101000"), gtpHeader(0x34, 255, 9, "00000085"+"ff101000"), gtpHeader(0x32, 1, 9, "00010000"),
	} {
		for _, inner := range []string{gtpInner, gtpInner6, "tcp 88.88.88.89:4000 > 20.20.20.1:80 S"} {
			frame := build(f, gtpOuter+" data "+header+hex.EncodeToString(build(f, inner)[14:]))
			f.Add(frame[34:], uint8(0))
			f.Add(frame[34:], uint8(3))
		}
	}
	outer := build(f, gtpOuter+" len 0")[:34]
	f.Fuzz(func(t *testing.T, datagram []byte, tos uint8) {
		if len(datagram) > 1400 {
			return
		}
		frame := pkt.Decode(append(bytes.Clone(outer), datagram...)).Unset(pkt.IPLen).SetNum(pkt.TOS, uint64(tos)).Unset(pkt.IPSum).Build()
		verdict, got := runGTP(t, g, bytes.Clone(frame))
		switch {
		case verdict == testrun.Shot: // by its congestion mark
			return
		case verdict != testrun.Next:
			t.Fatalf("%x: verdict %d", frame, verdict)
		case bytes.Equal(got, frame):
			return
		}
		if from, to, whole := innerAddrs(got[14:]); !whole || !(from == "88.88.88.88" && to == "20.20.20.1" || from == "2001:db8:88::1" && to == "2001:db8:20::1") {
			t.Fatalf("%x left the tunnel as %s", frame, pkt.Decode(got))
		}
		const changes = 14 + 12 // the Ethernet header, and the beginning of the IP header: ECN and checksum
		if len(got) <= changes || len(got) >= len(frame) || !bytes.HasSuffix(frame, got[changes:]) {
			t.Fatalf("%x became %x", frame, got)
		}
	})
}

// FuzzGTPBalanced checks that of any datagram to a service with --select=n3 only the source port
// changes, to that of the tunnel in its header, and the checksum with it.
func FuzzGTPBalanced(f *testing.F) {
	g := loadGTP(f)
	outers := []string{"udp 10.10.10.56:2152 > 20.20.20.9:2152", "udp [2001:db8:10::56]:2152 > [2001:db8:20::9]:2152"}
	for _, header := range []string{
		gtpHeader(0x30, 255, 9, ""), gtpHeader(0x34, 255, 9, "00000085"+"01101000"), gtpHeader(0x30, 254, 1<<31, ""),
		gtpHeader(0x32, 1, 0, "00010000"), gtpHeader(0x32, 26, 0, "00010000"),
		gtpHeader(0x50, 255, 9, ""), gtpHeader(0x20, 255, 9, ""),
	} {
		frame := build(f, outers[0]+" data "+header)
		for _, six := range []bool{false, true} {
			f.Add(frame[34:], uint8(0), six)
			f.Add(frame[34:], uint8(1), six)
			f.Add(frame[34:46], uint8(0), six)
		}
	}
	f.Fuzz(func(t *testing.T, datagram []byte, fragment uint8, six bool) {
		if len(datagram) > 1400 {
			return
		}
		outer := build(t, outers[0]+" len 0")[:34]
		switch {
		case six:
			outer = build(t, outers[1]+" len 0")[:54]
		case fragment > 0: // the offset, in units of eight bytes
			outer[21] = fragment - 1
			outer[20] |= 0x20
		}
		frame := append(bytes.Clone(outer), datagram...)
		verdict, got := runGTP(t, g, bytes.Clone(frame))
		if verdict != testrun.Next {
			t.Fatalf("%x: verdict %d", frame, verdict)
		}
		if bytes.Equal(got, frame) {
			return
		}
		if len(datagram) < 16 || fragment > 1 && !six {
			t.Fatalf("%x became %x although its header is incomplete", frame, got)
		}
		udp, teid := datagram[:8], binary.BigEndian.Uint32(datagram[12:])
		if udp[2] != 2152>>8 || udp[3] != 2152&0xff || datagram[8]&0xf0 != 0x30 || datagram[9] < 254 {
			t.Fatalf("%x became %x although it is not in a tunnel", frame, got)
		}
		if want := withSource(frame, lb.TunnelPort(teid)); !bytes.Equal(got, want) {
			t.Fatalf("%x became %x, want %x", frame, got, want)
		}
	})
}

// innerAddrs returns the addresses of an IP packet, and whether its header is whole.
func innerAddrs(ip []byte) (from, to string, whole bool) {
	at, size := 12, 4
	if len(ip) > 0 && ip[0]>>4 == 6 {
		at, size = 8, 16
	}
	if len(ip) < at+2*size || size == 4 && ip[0] < 0x45 {
		return "", "", false
	}
	text := func(b []byte) string { a, _ := netip.AddrFromSlice(b); return a.String() }
	return text(ip[at:][:size]), text(ip[at+size:][:size]), true
}
