package explain

import (
	"strings"
	"testing"
)

// What cannot be asked is refused in one sentence.
func TestQuestions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, protocol, want string }{
		{"", "10.0.0.1:80", "", `from "" is missing (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"1.1.1.1", "", "", `to "" is missing (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"host:80", "10.0.0.1:80", "", `from "host:80" is not an address (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"1.1.1.1:99999", "10.0.0.1:80", "", `from "1.1.1.1:99999" is not an address (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"fe80::1%eth0", "10.0.0.1:80", "", `from "fe80::1%eth0" has a zone (allowed: an address without one, and the interface apart)`},
		{"::ffff:1.1.1.1", "10.0.0.1:80", "", `from "::ffff:1.1.1.1" is an IPv4 address in IPv6 (allowed: 1.1.1.1)`},
		{"1.1.1.1", "10.0.0.1:80", "gre", `proto "gre" is not a protocol that can be asked about (allowed: tcp, udp or icmp)`},
		{"1.1.1.1", "10.0.0.1:80", "sctp", `proto "sctp" is not a protocol that can be asked about (allowed: tcp, udp or icmp)`},
		{"1.1.1.1", "[2001:db8::1]:80", "", `to "2001:db8::1" is of another IP version than 1.1.1.1 (allowed: two addresses of one version)`},
		{"1.1.1.1", "10.0.0.1:80", "", ""},
		{"[2001:db8::2]:5", "2001:db8::1", "icmp", ""},
	} {
		q, err := Parse(c.from, c.to, c.protocol, "")
		if err == nil {
			err = q.check()
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if _, err := ParseReverse("1.1.1.1", "x", "", ""); err == nil || !strings.HasPrefix(err.Error(), `endpoint "x" is not an address`) {
		t.Error(err)
	}
	for length, ok := range map[int]bool{0: true, 59: false, 60: true, 65000: true, 65001: false, -1: false} {
		q, err := Parse("1.1.1.1", "10.0.0.1:80", "", "")
		if err != nil {
			t.Fatal(err)
		}
		q.Length = length
		if err := q.check(); (err == nil) != ok {
			t.Errorf("length %d: %v", length, err)
		}
	}
}
