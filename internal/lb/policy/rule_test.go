package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want, err string }{
		{in: "sourceIP:10.1.2.3/8,preference:5 drop", want: "sourceIP:10.0.0.0/8,preference:5 drop"},
		{in: "sourceIP:10.1.2.3 allow", want: "sourceIP:10.1.2.3/32 allow"},
		{in: "SOURCEIP:2001:db8::1/32,protocol:TCP trap", want: "sourceIP:2001:db8::/32,protocol:6 trap"},
		{in: "minDestinationPort:80 drop", want: "minDestinationPort:80,maxDestinationPort:80 drop"},
		{in: "maxDestinationPort:80 drop", want: "maxDestinationPort:80 drop"},
		{in: "minSourcePort:1,maxSourcePort:65535,portName:eth0 drop", want: "portName:eth0 drop"},
		{in: "protocol:1,maxProtocol:58 allow mark=9", want: "protocol:1,maxProtocol:58 allow mark=9"},
		{in: "protocol:1,maxProtocol:255 drop", want: "preference:0 drop"},
		{in: "sourceIP:10.0.0.0/8,destinationIP:0.0.0.0/0 drop", want: "sourceIP:10.0.0.0/8 drop"},
		{in: "sourceIP:0.0.0.0/0,destinationIP:10.0.0.1/32 drop", want: "destinationIP:10.0.0.1/32 drop"},
		{in: "sourceIP:0.0.0.0/0,destinationIP:0.0.0.0/0 drop", want: "sourceIP:0.0.0.0/0 drop"},
		{in: "sourceIP:::/0 drop", want: "sourceIP:::/0 drop"},
		{in: "preference:0 drop", want: "preference:0 drop"},
		{in: "sourceIP:10.0.0.0/8 snat=20.20.20.1 default mark=1", want: "sourceIP:10.0.0.0/8 snat=20.20.20.1 default mark=1"},
		{in: "preference:0 drop record", want: "preference:0 drop record"},
		{in: "portName:eth0 redirect=eth1", want: "portName:eth0 redirect=eth1"},
		{in: "sourceIP:10.0.0.0/8 snat=2001:db8::1", err: `toIP "2001:db8::1" is IPv6, and the rule is for IPv4 (allowed: an address of that version)`},
		{in: "portName:eth0 snat=127.0.0.1", err: `toIP "127.0.0.1" is a loopback address (allowed: a unicast address that can be routed)`},
		{in: "portName:eth0 redirect", err: `redirectPortName is missing (allowed: the interface by which packets leave)`},
		{in: "portName:eth0 drop default", err: `rule "default" is not known (allowed: mark=N, record, or default after snat=IP)`},
		{in: "portName:eth0 drop=eth1", err: `rule "drop=eth1" has a value, but the action has none (allowed: drop)`},
		{in: "sourceIP:10.0.0.0/8 reject", err: `action "reject" is not known (allowed: allow, drop, trap, redirect or snat)`},
		{in: "sourceIP:10.0.0.0/33 drop", err: `sourceIP "10.0.0.0/33" is not a prefix (allowed: IP/LENGTH or IP)`},
		{in: "sourceIP:10.0.0.0/8,destinationIP:::1/128 drop", err: `destinationIP "::1/128" is IPv6, and sourceIP 10.0.0.0/8 is not (allowed: two ranges of one IP version)`},
		{in: "minSourcePort:9,maxSourcePort:5 drop", err: `maxSourcePort "5" is less than the first port, 9 (allowed: that or more, or 0 for that port alone)`},
		{in: "minSourcePort:65536 drop", err: `minSourcePort "65536" is out of range (allowed: 0 to 65535)`},
		{in: "minSourcePort:9,protocol:1 drop", err: `protocol "1" has no ports, but the rule requires ports (allowed: 6 (TCP), 17 (UDP), 132 (SCTP), or 0 for any)`},
		{in: "minSourcePort:9,maxProtocol:5 drop", err: `protocol "0" has no ports, but the rule requires ports (allowed: 6 (TCP), 17 (UDP), 132 (SCTP), or 0 for any)`},
		{in: "protocol:256 drop", err: `protocol "256" is not a protocol (allowed: 0 (any) to 255, or tcp, udp, sctp, icmp, icmp6)`},
		{in: "protocol:58,maxProtocol:1 drop", err: `maxProtocol "1" is less than the first protocol, 58 (allowed: that or more, or 0 for that protocol alone)`},
		{
			in:  "portName:averyveryverylongname drop",
			err: `portName "averyveryverylongname" is not the name of an interface (allowed: 1 to 15 characters without spaces, slashes, colons and commas)`,
		},
		{in: "sourceIP:10.0.0.1,sourceIP:10.0.0.2 drop", err: `firewallRule "sourceIP" is given twice (allowed: each key once)`},
		{in: "source:10.0.0.1 drop", err: `firewallRule "source" is not a key of a rule (allowed: ` + strings.Join(RuleKeys(), ", ") + `)`},
		{in: "sourceIP drop", err: `firewallRule "sourceIP" has no colon (allowed: KEY:VALUE,KEY:VALUE, as in sourceIP:10.0.0.0/8,minDestinationPort:80)`},
		{in: "preference:0 drop mark=5", err: `fwMark "5" has no effect on dropped packets (allowed: 0, or another action than drop)`},
	} {
		got, err := ParseRule(c.in)
		switch {
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%q: error\n%v, want\n%s", c.in, err, c.err)
		case c.err == "" && err != nil:
			t.Errorf("%q: got %v, want no error", c.in, err)
		case c.err == "" && got.String() != c.want:
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

// TestRuleRecord checks that a record restores the same rule.
func TestRuleRecord(t *testing.T) {
	t.Parallel()
	r, err := ParseRule("sourceIP:10.0.0.0/8,minSourcePort:1,maxSourcePort:5,minDestinationPort:80,protocol:6,portName:eth0,preference:7 allow mark=3")
	if err != nil {
		t.Fatal(err)
	}
	data, err := r.MarshalRecord()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"source":"10.0.0.0/8","sourcePortMin":1,"sourcePortMax":5,"destinationPortMin":80,"destinationPortMax":80,"protocol":6,` +
		`"interface":"eth0","preference":7,"action":"allow","mark":3}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("the JSON differs (-want +got):\n%s", diff)
	}
	if got, err := UnmarshalRule(data); err != nil || got != r {
		t.Errorf("%v, %v; want %v", got, err, r)
	}
	for _, bad := range []string{`{"action":"reject"}`, `{"action":"drop","novelty":1}`, `{"action":"drop","mark":1}`} {
		if _, err := UnmarshalRule([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestRuleOrder checks the order of rules: by preference, then the more specific first.
func TestRuleOrder(t *testing.T) {
	t.Parallel()
	want := []string{
		"preference:9", "sourceIP:10.0.0.1/32,minDestinationPort:80,maxDestinationPort:80", "sourceIP:10.0.0.1/32,minDestinationPort:80,maxDestinationPort:90",
		"sourceIP:10.0.0.0/8,destinationIP:10.0.0.0/8",
		"sourceIP:2001:db8::/64", "destinationIP:10.0.0.0/8,protocol:6,portName:eth0", "destinationIP:10.0.0.0/8,protocol:6", "destinationIP:10.0.0.0/8", "sourceIP:10.0.0.0/8",
		"sourceIP:0.0.0.0/0", "maxProtocol:6", "protocol:2,maxProtocol:255", "portName:eth0", "preference:0",
	}
	list := make([]Rule, len(want))
	for i, text := range want {
		var err error
		if list[len(want)-1-i], err = ParseRuleKey(text); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(list, func(a, b Rule) int { return CompareRules(&a, &b) })
	var got []string
	for _, r := range list {
		got = append(got, r.Key())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
