package attach_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
)

// A user's packets, and their outer headers.
const (
	gtpInner  = "tcp 88.88.88.88:4000 > 20.20.20.1:80 PA seq 1001 ack 5001 len 33"
	gtpInner6 = "udp [2001:db8:88::1]:4000 > [2001:db8:20::1]:53 len 20"
	gtpOuter  = "udp 10.10.10.56:2152 > 10.10.10.59:2152 csum zero"
	gtpOuter6 = "udp [2001:db8:10::56]:2152 > [2001:db8:10::59]:2152"
)

func loadGTP(t testing.TB) *attach.GTP {
	t.Helper()
	g := attach.NewGTPForTest(t)
	core, access := lb.TunnelEnd{TEID: 9, Addr: netip.MustParseAddr("10.10.10.59")}, lb.TunnelEnd{TEID: 7, Addr: netip.MustParseAddr("10.10.10.56")}
	core6 := core
	core6.TEID = 10
	outer6 := lb.TunnelEnd{TEID: 11, Addr: netip.MustParseAddr("2001:db8:10::59")}
	access6 := lb.TunnelEnd{TEID: 8, Addr: netip.MustParseAddr("2001:db8:10::56")}
	err := g.Write([]attach.GTPFlow{
		{User: netip.MustParseAddr("88.88.88.88"), Peer: netip.MustParseAddr("20.20.20.1"), Core: core, Access: access, QFI: 16},
		{User: netip.MustParseAddr("2001:db8:88::1"), Peer: netip.MustParseAddr("2001:db8:20::1"), Core: core6, Access: access, QFI: 63},
		{User: netip.MustParseAddr("88.88.88.90"), Peer: netip.MustParseAddr("20.20.20.1"), Core: outer6, Access: access6, QFI: 1},
		{User: netip.MustParseAddr("2001:db8:88::2"), Peer: netip.MustParseAddr("2001:db8:20::1"), Core: lb.TunnelEnd{TEID: 12, Addr: outer6.Addr}, Access: access6, QFI: 1},
	}, netip.MustParseAddr("20.20.20.9"), netip.MustParseAddr("2001:db8:20::9"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// gtpHeader returns a header of user data with these options, extension headers included.
func gtpHeader(flags, kind byte, teid uint32, rest string) string {
	return fmt.Sprintf("%02x%02x%04x%08x%s", flags, kind, 0, teid, rest)
}

// gtpFrame returns a packet in a tunnel.
func gtpFrame(t testing.TB, outer, header, inner string) []byte {
	t.Helper()
	return build(t, outer+" data "+header+hex.EncodeToString(build(t, inner)[14:]))
}

// runGTP returns the verdict of the uplink program, and the packet afterwards.
func runGTP(t testing.TB, g *attach.GTP, frame []byte) (testrun.Verdict, []byte) {
	t.Helper()
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: testrun.SKB{Ifindex: 1}}
	ret, err := g.Uplink().Run(&opts)
	if err != nil {
		t.Fatal(err)
	}
	return testrun.Verdict(int32(ret)), opts.DataOut
}

// TestGTP checks which packets are decapsulated, and that they then equal the user's, byte by byte.
func TestGTP(t *testing.T) {
	t.Parallel()
	g := loadGTP(t)
	in := func(header, inner string) []byte { return gtpFrame(t, gtpOuter, header, inner) }
	for _, c := range []struct {
		what  string
		frame []byte
		out   string // "": unchanged
		count string
	}{
		{"plain", in(gtpHeader(0x30, 255, 9, ""), gtpInner), gtpInner, "taken"},
		{"with a sequence number", in(gtpHeader(0x32, 255, 9, "00010000"), gtpInner), gtpInner, "taken"},
		{"with a QoS flow", in(gtpHeader(0x34, 255, 9, "00000085"+"01101000"), gtpInner), gtpInner, "taken"},
		{"with four extension headers", in(gtpHeader(0x34, 255, 9, "00000085"+"01101085"+"0200000000000085"+"01101085"+"01101000"), gtpInner), gtpInner, "taken"},
		{"IPv6", in(gtpHeader(0x30, 255, 10, ""), gtpInner6), gtpInner6, "taken"},
		{
			"over IPv6",
			gtpFrame(t, gtpOuter6, gtpHeader(0x34, 255, 11, "00000085"+"01101000"), strings.Replace(gtpInner, "88.88:4000", "88.90:4000", 1)),
			strings.Replace(gtpInner, "88.88:4000", "88.90:4000", 1), "taken",
		},
		{
			"IPv6 over IPv6",
			gtpFrame(t, gtpOuter6, gtpHeader(0x30, 255, 12, ""), strings.Replace(gtpInner6, "88::1", "88::2", 1)),
			strings.Replace(gtpInner6, "88::1", "88::2", 1), "taken",
		},
		{"over IPv6, the TEID of a tunnel over IPv4", gtpFrame(t, gtpOuter6, gtpHeader(0x30, 255, 9, ""), gtpInner), "", ""},
		{"five extension headers", in(gtpHeader(0x34, 255, 9, "00000085"+"01101085"+"01101085"+"01101085"+"01101085"+"01101000"), gtpInner), "", ""},
		{"an extension header without length", in(gtpHeader(0x34, 255, 9, "00000085"+"00101000"), gtpInner), "", ""},
		{"an extension header beyond the packet", in(gtpHeader(0x34, 255, 9, "00000085"+"ff101000"), gtpInner), "", ""},
		{"an echo request", in(gtpHeader(0x32, 1, 9, "00010000"), gtpInner), "", ""},
		{"GTP'", in(gtpHeader(0x20, 255, 9, ""), gtpInner), "", ""},
		{"version 2", in(gtpHeader(0x50, 255, 9, ""), gtpInner), "", ""},
		{"another tunnel", in(gtpHeader(0x30, 255, 8, ""), gtpInner), "", ""},
		{"another user", in(gtpHeader(0x30, 255, 9, ""), "tcp 88.88.88.89:4000 > 20.20.20.1:80 S"), "", "forged"},
		{"another destination", in(gtpHeader(0x30, 255, 9, ""), "tcp 88.88.88.88:4000 > 20.20.20.2:80 S"), "", ""},
		{"another port", build(t, "udp 10.10.10.56:2152 > 10.10.10.59:2153 csum zero data "+gtpHeader(0x30, 255, 9, "")+hex.EncodeToString(build(t, gtpInner)[14:])), "", ""},
		{"an IP header that is too short", in(gtpHeader(0x30, 255, 9, ""), gtpInner+" ihl 1"), "", ""},
		{"behind the end of the datagram", gtpFrame(t, gtpOuter+" udplen 16", gtpHeader(0x30, 255, 9, ""), gtpInner), "", ""},
		{"that exceeds the datagram by a byte", gtpFrame(t, gtpOuter+" udplen 88", gtpHeader(0x30, 255, 9, ""), gtpInner), "", ""},
		{"behind the end of the outer packet", gtpFrame(t, gtpOuter+" iplen 108", gtpHeader(0x30, 255, 9, ""), gtpInner), "", ""},
		{"behind the end of the outer packet of IPv6", gtpFrame(t, gtpOuter6+" iplen 48", gtpHeader(0x34, 255, 12, "00000085"+"01101000"), strings.Replace(gtpInner6, "88::1", "88::2", 1)), "", ""},
		{"no user's packet", build(t, gtpOuter+" data "+gtpHeader(0x30, 255, 9, "")), "", ""},
	} {
		before, err := g.GTPCounts()
		if err != nil {
			t.Fatal(err)
		}
		verdict, got := runGTP(t, g, c.frame)
		after, err := g.GTPCounts()
		if err != nil {
			t.Fatal(err)
		}
		for name := range after {
			if n := after[name] - before[name]; (n == 1) != (name == c.count) {
				t.Errorf("%s: counted %d as %s, want it as %q", c.what, n, name, c.count)
			}
		}
		want := c.frame
		if c.out != "" {
			want = build(t, c.out)
		}
		if verdict != testrun.Next || !bytes.Equal(got, want) {
			t.Errorf("%s: verdict %d\nwant %x\ngot  %x", c.what, verdict, want, got)
		}
	}
}

// TestGTPDownlink checks which packets to users have a tunnel: those from a classified address, and
// ICMP errors about packets to it, whichever router sends them. No route leads to the base station
// here, so packets with a tunnel count as failed.
func TestGTPDownlink(t *testing.T) {
	t.Parallel()
	g := loadGTP(t)
	const quoted, quoted6 = " / tcp 88.88.88.88:4000 > 20.20.20.1:80 A len 8", " / udp [2001:db8:88::1]:4000 > [2001:db8:20::1]:53 len 8"
	for _, c := range []struct{ packet, count string }{
		{"tcp 20.20.20.1:80 > 88.88.88.88:4000 A", "failed"},
		{"tcp 20.20.20.2:80 > 88.88.88.88:4000 A", "unclassified"},
		{"icmp 9.9.9.9 > 88.88.88.88 unreach frag-needed mtu 1300" + quoted, "failed"},
		{"icmp 9.9.9.9 > 88.88.88.88 time-exceeded ipopt 01010100" + quoted, "failed"},
		{"icmp 9.9.9.9 > 88.88.88.89 unreach frag-needed mtu 1300" + quoted, "unclassified"},
		{"icmp 9.9.9.9 > 88.88.88.88 unreach port / tcp 88.88.88.88:4000 > 20.20.20.2:80 A len 8", "unclassified"},
		{"icmp 9.9.9.9 > 88.88.88.88 type 5 code 1" + quoted, "unclassified"},
		{"icmp 9.9.9.9 > 88.88.88.88 echo id 1 len 40", "unclassified"},
		{"icmp 9.9.9.9 > 88.88.88.88 unreach port frag 8" + quoted, "unclassified"},
		{"ip 9.9.9.9 > 88.88.88.88 proto 1 data 0304000000000514", "unclassified"},
		{"icmp6 2001:db8::9 > 2001:db8:88::1 too-big mtu 1300" + quoted6, "failed"},
		{"icmp6 2001:db8::9 > 2001:db8:88::2 too-big mtu 1300" + quoted6, "unclassified"},
		{"icmp6 2001:db8::9 > 2001:db8:88::1 echo id 1 len 60", "unclassified"},
	} {
		before, err := g.GTPCounts()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Downlink().Run(&ebpf.RunOptions{Data: build(t, c.packet), Context: testrun.SKB{Ifindex: 1}}); err != nil {
			t.Fatal(err)
		}
		after, err := g.GTPCounts()
		if err != nil {
			t.Fatal(err)
		}
		for name := range after {
			if n := after[name] - before[name]; (n == 1) != (name == c.count) {
				t.Errorf("%s: counted %d as %s, want it as %s", c.packet, n, name, c.count)
			}
		}
	}
}

// TestGTPCut checks that a packet that is truncated, or has a changed byte, stays unchanged or is
// decapsulated: nothing is read or written beyond its end.
func TestGTPCut(t *testing.T) {
	t.Parallel()
	g := loadGTP(t)
	whole := build(t, gtpOuter+" data "+gtpHeader(0x34, 255, 9, "00000085"+"01101000")+hex.EncodeToString(build(t, gtpInner)[14:]))
	for n := 34; n < len(whole); n++ { // the kernel runs programs on whole IP headers only
		if _, got := runGTP(t, g, bytes.Clone(whole[:n])); len(got) != n && len(got) != n-44 {
			t.Errorf("cut at %d: %d bytes", n, len(got))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		frame := bytes.Clone(whole)
		for range 1 + random.IntN(3) {
			at := 14 + random.IntN(60)
			binary.BigEndian.PutUint16(frame[at:], uint16(random.Uint32()))
		}
		if _, got := runGTP(t, g, frame); len(got) > len(frame) {
			t.Fatalf("%x has grown to %d bytes", frame, len(got))
		}
	}
}
