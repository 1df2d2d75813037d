package report

import (
	"testing"

	"loxilb/internal/pkt"
)

// TestHeaders checks that headers, including those of tunnels and quoted packets, are kept, and
// that payload is not.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for packet, want := range map[string]int{
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 PA len 100":                                              14 + 20 + 20,
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 S opt mss:1460,nop,ws:7":                                 14 + 20 + 28,
		"udp 1.1.1.1:4000 > 10.0.0.1:53 len 100 vlan 7":                                          18 + 20 + 8,
		"udp 1.1.1.1:4000 > 10.0.0.1:53 frag 1480 len 100":                                       14 + 20,
		"tcp [2001:db8::1]:4000 > [2001:db8::2]:80 PA len 100":                                   14 + 40 + 20,
		"udp [2001:db8::1]:4000 > [2001:db8::2]:80 ext hbh,dst:16 len 100":                       14 + 40 + 8 + 16 + 8,
		"icmp 1.1.1.1 > 10.0.0.1 echo id 1 seq 1 len 56":                                         14 + 20 + 8,
		"icmp 1.1.1.1 > 10.0.0.1 unreach port / udp 10.0.0.1:53 > 1.1.1.1:4000 len 40":           14 + 20 + 8 + 20 + 8,
		"ip 1.1.1.1 > 10.0.0.1 / tcp 1.1.1.2:4000 > 10.0.0.1:80 PA len 100":                      14 + 20 + 20 + 20,
		"icmp6 2001:db8::1 > 2001:db8::2 unreach port / udp [2001:db8::2]:53 > [2001:db8::1]:40": 14 + 40 + 8 + 40 + 8,
		"eth 0x88cc len 46":                     14,
		"ip 1.1.1.1 > 10.0.0.1 proto 47 len 20": 14 + 20,
	} {
		p, err := pkt.Parse(packet)
		if err != nil {
			t.Fatal(err)
		}
		frame := p.Build()
		if got := (&PacketView{Data: frame}).HeaderLength(); got != want {
			t.Errorf("%s: %d bytes, want %d", packet, got, want)
		}
		for n := range frame { // truncated anywhere: never longer than the frame
			if got := (&PacketView{Data: frame[:n]}).HeaderLength(); got > n {
				t.Errorf("%d bytes of %s: %d", n, packet, got)
			}
			if got := (&PacketView{Data: frame[:n], Layer3: true}).HeaderLength(); got > n {
				t.Errorf("%d bytes of %s: %d", n, packet, got)
			}
		}
	}
}

// FuzzHeaders checks that any data has at most its own length of headers.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte("\x45\x00"), true)
	f.Fuzz(func(t *testing.T, b []byte, layer3 bool) {
		if got := (&PacketView{Data: b, Layer3: layer3}).HeaderLength(); got < 0 || got > len(b) {
			t.Errorf("%d of %d bytes", got, len(b))
		}
	})
}
