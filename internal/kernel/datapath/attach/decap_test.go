package attach_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/pkt"
)

// build returns a frame for lo.
func build(t testing.TB, text string) []byte {
	t.Helper()
	p, err := pkt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	frame := p.Build()
	clear(frame[:12])
	return frame
}

// TestDecap checks that the inner packet leaves unchanged, except for congestion marks of the outer
// header, and that packets from other sources than load balancers, or for no VIP, are not changed.
//
// V144 endpoints get the inner packet unchanged
// V145 outer headers of strangers are left to the kernel
func TestDecap(t *testing.T) {
	t.Parallel()
	d, err := attach.LoadDecap(attach.DecapConfig{
		VIPs: []netip.Addr{netip.MustParseAddr("20.20.20.1"), netip.MustParseAddr("2001:db8:20::1")},
		From: []netip.Prefix{
			netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("100::/64"),
			netip.MustParsePrefix("31.31.31.254/32"), netip.MustParsePrefix("2001:db8:31::/64"),
		},
		Port: 6080,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	const (
		inner4 = "tcp 1.1.1.1:4000 > 20.20.20.1:80 PA seq 1001 ack 5001 len 33"
		inner6 = "udp [2001:db8:100::1]:4000 > [2001:db8:20::1]:53 len 20"
		from4  = "ip 198.18.1.14 > 127.0.0.1 proto 4"
	)
	inUDP := func(outer, inner string) string {
		return outer + " csum zero data " + hex.EncodeToString(build(t, inner)[14:])
	}
	for _, c := range []struct {
		what, in, out string // out "": unchanged; drop: dropped
		count         string
	}{
		// the inner packet leaves as it arrived
		{"4 in 4", from4 + " / " + inner4, inner4, "taken"},
		{"4 in 6", "ip 100::1 > ::1 proto 4 / " + inner4, inner4, "taken"},
		{"6 in 4", "ip 198.19.255.255 > 127.0.0.1 proto 41 / " + inner6, inner6, "taken"},
		{"6 in 6", "ip 100::9ed8:94a7:4dd0:a8d > ::1 proto 41 / " + inner6, inner6, "taken"},
		{"4 in UDP over 4", inUDP("udp 31.31.31.254:50000 > 127.0.0.1:6080", inner4), inner4, "taken"},
		{"6 in UDP over 4", inUDP("udp 31.31.31.254:50000 > 127.0.0.1:6080", inner6), inner6, "taken"},
		{"4 in UDP over 6", inUDP("udp [2001:db8:31::fe]:50000 > [::1]:6080", inner4), inner4, "taken"},
		{"6 in UDP over 6", inUDP("udp [2001:db8:31::fe]:50000 > [::1]:6080", inner6), inner6, "taken"},
		// the outer source is not a load balancer
		{"stranger", "ip 8.8.8.8 > 127.0.0.1 proto 4 / " + inner4, "", "source"},
		{"stranger over 6", "ip 2001:db8:32::1 > ::1 proto 41 / " + inner6, "", "source"},
		{"stranger with UDP", inUDP("udp 31.31.31.253:50000 > 127.0.0.1:6080", inner4), "", "source"},
		{"no VIP", from4 + " / tcp 1.1.1.1:4000 > 20.20.20.2:80 S", "", "vip"},
		{"another port", inUDP("udp 31.31.31.254:50000 > 127.0.0.1:6081", inner4), "", ""},
		{"no tunnel", "tcp 198.18.1.1:4000 > 20.20.20.1:80 S", "", ""},

		{"a fragment", from4 + " ipid 7 mf / " + inner4, "", ""},
		// congestion on the path (RFC 6040)
		{"met, capable 0", from4 + " tos 0x3 / " + inner4 + " tos 0xba", inner4 + " tos 0xbb", "taken"},
		{"met, capable 1", from4 + " tos 0x3 / " + inner4 + " tos 0x1", inner4 + " tos 0x3", "taken"},
		{"capable 1, capable 0", from4 + " tos 0x1 / " + inner4 + " tos 0x2", inner4 + " tos 0x1", "taken"},
		{"no mark, met before", from4 + " / " + inner4 + " tos 0x3", inner4 + " tos 0x3", "taken"},
		{"met over 6", "ip 100::1 > ::1 proto 41 tos 0x3 / " + inner6 + " tos 0x2", inner6 + " tos 0x3", "taken"},
		{"another DSCP", from4 + " tos 0xb8 / " + inner4 + " tos 0x1c", inner4 + " tos 0x1c", "taken"},
		{"met, not capable", from4 + " tos 0x3 / " + inner4, "drop", "congestion"},
	} {
		before, err := d.Counts()
		if err != nil {
			t.Fatal(err)
		}
		frame := build(t, c.in)
		opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: testrun.SKB{Ifindex: 1}}
		ret, err := d.Ether().Run(&opts)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		after, err := d.Counts()
		if err != nil {
			t.Fatal(err)
		}
		for name := range after {
			if got := after[name] - before[name]; (got == 1) != (name == c.count) {
				t.Errorf("%s: counted %d as %s, want it as %q", c.what, got, name, c.count)
			}
		}
		want := frame
		switch c.out {
		case "drop":
			if testrun.Verdict(int32(ret)) != testrun.Shot {
				t.Errorf("%s: not dropped", c.what)
			}
			continue
		case "":
		default:
			want = build(t, c.out)
		}
		if testrun.Verdict(int32(ret)) != testrun.Next || !bytes.Equal(opts.DataOut, want) {
			t.Errorf("%s: verdict %d\nwant %x\ngot  %x", c.what, int32(ret), want, opts.DataOut)
		}
	}
}
