package attach_test

import (
	"bytes"
	"testing"

	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// TestGTPSourcePort checks that GTP messages of a tunnel to the VIP of a service get the tunnel's
// own source port, from any base station and with a correct checksum. Other packets stay unchanged.
func TestGTPSourcePort(t *testing.T) {
	t.Parallel()
	g := loadGTP(t)
	const (
		vip4 = "udp 10.10.10.56:2152 > 20.20.20.9:2152"
		vip6 = "udp [2001:db8:10::56]:2152 > [2001:db8:20::9]:2152"
	)
	for _, c := range []struct {
		what, outer, header string
		set                 bool
	}{
		{"user data", vip4, gtpHeader(0x30, 255, 9, ""), true},
		{"without a UDP checksum", vip4 + " csum zero", gtpHeader(0x30, 255, 9, ""), true},
		{"with options", vip4, gtpHeader(0x34, 255, 9, "00000085"+"01101000"), true},
		{"an end marker", vip4, gtpHeader(0x30, 254, 9, ""), true},
		{"IPv6", vip6, gtpHeader(0x30, 255, 9, ""), true},
		{"IPv6, without a UDP checksum", vip6 + " csum zero", gtpHeader(0x30, 255, 9, ""), true},
		{"IPv4 options", vip4 + " ipopt 94040000", gtpHeader(0x30, 255, 9, ""), true},
		{"another base station and port", "udp 10.10.10.57:40000 > 20.20.20.9:2152", gtpHeader(0x30, 255, 9, ""), true},
		{"a first fragment", vip4 + " mf", gtpHeader(0x30, 255, 9, ""), true},
		{"a later fragment", vip4 + " frag 64", gtpHeader(0x30, 255, 9, ""), false},
		{"an echo request", vip4, gtpHeader(0x32, 1, 0, "00010000"), false},
		{"an error indication", vip4, gtpHeader(0x32, 26, 0, "00010000"), false},
		{"GTP'", vip4, gtpHeader(0x20, 255, 9, ""), false},
		{"version 2", vip4, gtpHeader(0x50, 255, 9, ""), false},
		{"another port", "udp 10.10.10.56:2152 > 20.20.20.9:2153", gtpHeader(0x30, 255, 9, ""), false},
		{"another address", "udp 10.10.10.56:2152 > 20.20.20.8:2152", gtpHeader(0x30, 255, 9, ""), false},
		{"TCP", "tcp 10.10.10.56:2152 > 20.20.20.9:2152 PA", gtpHeader(0x30, 255, 9, ""), false},
	} {
		frame := gtpFrame(t, c.outer, c.header, gtpInner)
		verdict, got := runGTP(t, g, bytes.Clone(frame))
		want := frame
		if c.set {
			want = withSource(frame, lb.TunnelPort(9))
		}
		if verdict != testrun.Next || !bytes.Equal(got, want) {
			t.Errorf("%s: got verdict %d, want the packet passed on\nwant %s\ngot  %s", c.what, verdict, pkt.Decode(want), pkt.Decode(got))
		}
	}
	ports := map[uint16]bool{}
	for teid := range uint32(1000) {
		frame := gtpFrame(t, vip4, gtpHeader(0x30, 255, teid<<20, ""), gtpInner) // equal low bits
		_, got := runGTP(t, g, frame)
		ports[uint16(got[34])<<8|uint16(got[35])] = true
	}
	if len(ports) < 900 {
		t.Errorf("1,000 tunnels share %d source ports, want at least 900", len(ports))
	}
}

// withSource returns a UDP packet with another source port.
func withSource(frame []byte, port uint16) []byte {
	frame = bytes.Clone(frame)
	at := 14 + 40
	if frame[14]>>4 == 4 {
		at = 14 + int(frame[14]&15)*4
	}
	old := uint32(frame[at])<<8 | uint32(frame[at+1])
	frame[at], frame[at+1] = byte(port>>8), byte(port)
	if sum := uint32(frame[at+6])<<8 | uint32(frame[at+7]); sum != 0 {
		sum = (^sum & 0xffff) + (^old & 0xffff) + uint32(port)
		sum = sum&0xffff + sum>>16
		sum = sum&0xffff + sum>>16
		if sum == 0xffff {
			sum = 0 // a checksum of 0 means that there is none
		}
		frame[at+6], frame[at+7] = byte(^sum>>8), byte(^sum)
	}
	return frame
}

// TestGTPSourcePortTruncated checks that only the source port and the checksum of a truncated
// packet change, and nothing unless its GTP header is complete.
func TestGTPSourcePortTruncated(t *testing.T) {
	t.Parallel()
	g := loadGTP(t)
	whole := gtpFrame(t, "udp 10.10.10.56:2152 > 20.20.20.9:2152", gtpHeader(0x30, 255, 9, ""), gtpInner)
	for n := 34; n <= len(whole); n++ {
		_, got := runGTP(t, g, bytes.Clone(whole[:n]))
		want := whole[:n]
		if n >= 34+8+8 {
			want = withSource(want, lb.TunnelPort(9))
		}
		if !bytes.Equal(got, want) {
			t.Errorf("packet cut to %d bytes\nwant %x\ngot  %x", n, want, got)
		}
	}
}
