package explain

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"loxilb/internal/lb"
)

// TestQuestions checks that an invalid question is refused with one sentence.
func TestQuestions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, protocol, want string }{
		{"", "10.0.0.1:80", "", `from is missing (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"1.1.1.1", "", "", `to is missing (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"host:80", "10.0.0.1:80", "", `from "host:80" is not an address (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"1.1.1.1:99999", "10.0.0.1:80", "", `from "1.1.1.1:99999" is not an address (allowed: IP or IP:PORT, IPv6 with a port in brackets)`},
		{"fe80::1%eth0", "10.0.0.1:80", "", `from "fe80::1%eth0" has a zone (allowed: an address without a zone, and the interface in its own field)`},
		{"::ffff:1.1.1.1", "10.0.0.1:80", "", `from "::ffff:1.1.1.1" is an IPv4 address in IPv6 (allowed: 1.1.1.1)`},
		{"1.1.1.1", "10.0.0.1:80", "gre", `proto "gre" is not supported (allowed: tcp, udp, sctp or icmp)`},
		{"1.1.1.1", "10.0.0.1:80", "dccp", `proto "dccp" is not supported (allowed: tcp, udp, sctp or icmp)`},
		{"1.1.1.1", "[2001:db8::1]:80", "", `to "2001:db8::1" has another IP version than 1.1.1.1 (allowed: two addresses of one version)`},
		{"1.1.1.1", "10.0.0.1:80", "", ""},
		{"[2001:db8::2]:5", "2001:db8::1", "icmp", ""},
	} {
		q, err := Parse(c.from, c.to, c.protocol, "")
		if err == nil {
			err = q.checkPacket()
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c, got, c.want)
		}
	}
	if _, err := ParseReverse("1.1.1.1", "x", "", ""); err == nil || !strings.HasPrefix(err.Error(), `endpoint "x" is not an address`) {
		t.Errorf("got %v, want an error, the error begins with `endpoint \"x\" is not an address`", err)
	}
	for length, ok := range map[int]bool{0: true, 59: false, 60: true, 3500: true, 3501: false, -1: false} {
		q := Question{Length: length}
		if err := q.checkLength(); (err == nil) != ok {
			t.Errorf("length %d: %v", length, err)
		}
	}
}

// TestConnectionID checks that a connection ID makes the packet one of UDP, and refuses others.
func TestConnectionID(t *testing.T) {
	t.Parallel()
	const allowed = " (allowed: 1 to 20 bytes, two hexadecimal digits each)"
	longest := strings.Repeat("0a", maxConnectionID)
	for _, c := range []struct{ id, protocol, want string }{
		{"", "tcp", ""},
		{"000b01020304", "", ""},
		{longest, "udp", ""},
		{longest + "0a", "", `connectionID "` + longest + `0a" is not a connection ID` + allowed},
		{"000", "", `connectionID "000" is not a connection ID` + allowed},
		{"x0", "", `connectionID "x0" is not a connection ID` + allowed},
		{"00", "tcp", `connectionID "00" cannot be combined with proto tcp (allowed: udp, which it implies)`},
	} {
		q, err := Parse("1.1.1.1", "10.0.0.1:443", c.protocol, "")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := q.SetConnectionID(c.id, c.protocol); err != nil {
			got = err.Error()
		}
		if got != c.want || got == "" && c.id != "" && (q.Protocol != lb.UDP || hex.EncodeToString(q.ConnectionID) != c.id) {
			t.Errorf("%+v: got %s, question %+v, want error %q or connection ID %q", c, got, q, c.want, c.id)
		}
	}
	q, err := ParseReverse("1.1.1.1", "31.31.31.1", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SetConnectionID("00", ""); err == nil || err.Error() != `connectionID "00" cannot be combined with client and endpoint (allowed: from and to)` {
		t.Errorf("got %v, want an error, "+
			"the error `connectionID \"00\" cannot be combined with client and endpoint (allowed: from and to)`",
			err)
	}
}

// TestTEID checks that a TEID makes the packet one of its tunnel, and refuses others.
func TestTEID(t *testing.T) {
	t.Parallel()
	const allowed = " (allowed: 1 to 4294967295, or hexadecimal as 0x12ab)"
	for _, c := range []struct {
		teid, protocol string
		from           uint16
		want           string
	}{
		{"", "tcp", 0, ""},
		{"9", "", lb.TunnelPort(9), ""},
		{"0xffffffff", "udp", lb.TunnelPort(0xffffffff), ""},
		{"0XfF", "", lb.TunnelPort(255), ""},
		{"010", "", lb.TunnelPort(10), ""},
		{"0b11", "", 0, `teid "0b11" is not a TEID` + allowed},
		{"1_0", "", 0, `teid "1_0" is not a TEID` + allowed},
		{"0x", "", 0, `teid "0x" is not a TEID` + allowed},
		{"ff", "", 0, `teid "ff" is not a TEID` + allowed},
		{"0", "", 0, `teid "0" is not a TEID` + allowed},
		{"0x100000000", "", 0, `teid "0x100000000" is not a TEID` + allowed},
		{"-1", "", 0, `teid "-1" is not a TEID` + allowed},
		{"9", "sctp", 0, `teid "9" cannot be combined with proto sctp (allowed: udp, which it implies)`},
	} {
		q, err := Parse("1.1.1.1", "10.0.0.1", c.protocol, "")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := q.SetTEID(c.teid, c.protocol); err != nil {
			got = err.Error()
		}
		if got != c.want || q.From.Port() != c.from || c.from != 0 && (q.Protocol != lb.UDP || q.To.Port() != lb.GTPPort) {
			t.Errorf("%+v: got error %q, question %+v", c, got, q)
		}
	}
	q, err := ParseReverse("1.1.1.1", "31.31.31.1", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SetTEID("9", ""); err == nil {
		t.Error("a client and an endpoint have a TEID")
	}
	if q, err = Parse("1.1.1.1", "10.0.0.1:2153", "", ""); err != nil {
		t.Fatal(err)
	}
	if err := q.SetTEID("9", ""); err != nil || q.To.Port() != 2153 {
		t.Errorf("a given port becomes %d, %v", q.To.Port(), err)
	}
	const both = `teid "9" cannot be combined with a connection ID (allowed: one of them)`
	if err := (&Question{ConnectionID: []byte{0}}).SetTEID("9", ""); err == nil || err.Error() != both {
		t.Errorf("a packet with a connection ID and a TEID: got %v, want %s", err, both)
	}
}

// TestLengthIsBounded checks that no form of a question builds a packet of gigabytes.
func TestLengthIsBounded(t *testing.T) {
	t.Parallel()
	for _, reverse := range []bool{false, true} {
		_, err := New(Explainer{}).Explain(t.Context(), &Question{Length: 1 << 31, Reverse: reverse})
		if fe := (*lb.FieldError)(nil); !errors.As(err, &fe) || fe.Field != "length" {
			t.Errorf("reverse %t: %v", reverse, err)
		}
	}
}

// TestAim checks that the wait for the lock ends with the caller's context, and that no source port
// is 0.
func TestAim(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, _, err := (&inquiry{ctx: gone}).findPort(&lb.Service{}, lb.Endpoint{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error context.Canceled", err)
	}
	for places, want := range map[int]uint16{0: 65000, 535: 65535, 536: 1024, 537: 1025} {
		if got := portFrom(65000, places); got != want {
			t.Errorf("%d places behind 65000: %d, want %d", places, got, want)
		}
	}
}
