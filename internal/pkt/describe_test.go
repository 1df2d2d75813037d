package pkt

import (
	"strings"
	"testing"
)

// TestDescribe checks that the line for a packet, or for its headers alone, has the important
// fields, and can be parsed.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		packet string
		begin  int // number of available bytes; 0: all
		all    bool
		want   string
	}{
		{"tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 7 ack 9 opt mss:1460 df ipid 5", 0, false, "tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 7 ttl 64"},
		{"tcp 1.1.1.1:4000 > 10.0.0.1:80 PA seq 7 ack 9 len 1000", 54, false, "tcp 1.1.1.1:4000 > 10.0.0.1:80 PA seq 7 ack 9 ttl 64 len 1000"},
		{"tcp 1.1.1.1:4000 > 10.0.0.1:80 PA seq 7 ack 9 data 4745545858", 56, false, "tcp 1.1.1.1:4000 > 10.0.0.1:80 PA seq 7 ack 9 ttl 64 len 5"},
		{"tcp 1.1.1.1:4000 > 10.0.0.1:80 A csum bad", 0, false, "tcp 1.1.1.1:4000 > 10.0.0.1:80 A seq 0 ack 0 ttl 64 csum bad"},
		{"udp [2001:db8::1]:5 > [2001:db8::2]:53 len 12", 62, false, "udp [2001:db8::1]:5 > [2001:db8::2]:53 ttl 64 len 12"},
		{
			"icmp 192.0.2.1 > 10.0.0.1 unreach port / udp 10.0.0.1:53 > 1.1.1.1:4000 len 3", 0, false,
			"icmp 192.0.2.1 > 10.0.0.1 unreach port ttl 64 / udp 10.0.0.1:53 > 1.1.1.1:4000 ttl 64 len 3",
		},
		{"tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 7", 0, true, "tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 7 win 65535 ttl 64 from 02:00:00:00:00:01 to 02:00:00:00:00:02"},
		{"eth 0x88cc len 46", 0, false, "eth 0x88cc len 46"},
	} {
		p, err := Parse(c.packet)
		if err != nil {
			t.Fatal(err)
		}
		frame := p.Build()
		begin := frame
		if c.begin > 0 {
			begin = frame[:c.begin]
		}
		got, data := Describe(begin, len(frame), false, c.all)
		if got != c.want || len(data) != max(0, c.begin-54) && len(data) > 0 {
			t.Errorf("%s:\n %s, want\n %s", c.packet, got, c.want)
		}
		if _, err := Parse(got); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if c.all || strings.HasPrefix(c.packet, "eth") {
			continue
		}
		if got, _ := Describe(begin[ethernetHeader:], len(frame)-ethernetHeader, true, false); got != c.want {
			t.Errorf("%s without link layer: %s", c.packet, got)
		}
	}
}
