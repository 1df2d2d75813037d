package policy

import (
	"net/netip"
	"testing"
	"time"
)

// TestDisconnected checks that exactly those sessions are disconnected that were not before, by the
// deciding rule.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	session := func(remote, local, device string) AcceptedConnection {
		return AcceptedConnection{Remote: netip.MustParseAddrPort(remote), Local: netip.MustParseAddrPort(local), Interface: device}
	}
	ssh := session("203.0.113.9:5000", "10.0.0.1:22", "eth0")
	six := session("[2001:db8::9]:5000", "[2001:db8::1]:22", "")
	for _, c := range []struct {
		before, after []string
		disconnected  int
	}{
		{nil, nil, 0},
		{nil, []string{"preference:0 drop"}, 2},
		{[]string{"preference:0 drop"}, []string{"preference:0 drop", "sourceIP:1.1.1.1 drop"}, 0},
		{nil, []string{"preference:0 drop", "minDestinationPort:22,protocol:6 allow"}, 0},
		{[]string{"preference:0 drop", "sourceIP:203.0.113.0/24 allow"}, []string{"preference:0 drop"}, 1},
		{nil, []string{"sourceIP:203.0.113.9 drop"}, 1},
		{nil, []string{"sourceIP:203.0.113.9,protocol:17 drop"}, 0},
		{nil, []string{"sourceIP:203.0.113.9,protocol:1,maxProtocol:17 drop"}, 1},
		{nil, []string{"minSourcePort:5001,maxSourcePort:6000 drop"}, 0},
		{nil, []string{"portName:eth0 drop"}, 2}, // the interface of the second one is not known
		{nil, []string{"portName:eth1 drop"}, 1},
		{nil, []string{"portName:eth1,preference:1 allow", "preference:0 drop"}, 2},
		{nil, []string{"portName:eth0,preference:1 allow", "preference:0 drop"}, 1},
		{nil, []string{"preference:0 trap"}, 0},
		{nil, []string{"preference:0 redirect=eth2"}, 2},
		{[]string{"preference:0 drop"}, []string{"preference:0 redirect=eth2"}, 0},
	} {
		read := func(texts []string) (list []Rule) {
			for _, text := range texts {
				r, err := ParseRule(text)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, r)
			}
			return list
		}
		if disconnected := Disconnected(read(c.before), read(c.after), []AcceptedConnection{ssh, six}); len(disconnected) != c.disconnected {
			t.Errorf("%v -> %v disconnects %v, want %d", c.before, c.after, disconnected, c.disconnected)
		}
	}
	if got, want := AcceptedNames([]AcceptedConnection{ssh, six, ssh, ssh, ssh}),
		"the ssh session from 203.0.113.9:5000 to 10.0.0.1:22, the ssh session from [2001:db8::9]:5000 to [2001:db8::1]:22, "+
			"the ssh session from 203.0.113.9:5000 to 10.0.0.1:22, 2 more"; got != want {
		t.Errorf("the sessions read %s, want %s", got, want)
	}
}

// TestDisconnectedOfMany checks that the sessions that a new rule disconnects are found quickly,
// with the maximum number of rules and thousands of sessions.
func TestDisconnectedOfMany(t *testing.T) {
	t.Parallel()
	before := make([]Rule, MaxRules-1)
	for i := range before {
		at := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		before[i] = Rule{Source: netip.PrefixFrom(at, 32), RuleVerdict: RuleVerdict{Action: RuleAction(i & 1)}}
	}
	after := append(before[:len(before):len(before)], Rule{Source: netip.MustParsePrefix("203.0.113.0/29"), Preference: 9, RuleVerdict: RuleVerdict{Action: RuleDrop}})
	sessions := make([]AcceptedConnection, 10_000)
	for i := range sessions {
		remote := netip.AddrFrom4([4]byte{203, 0, byte(113 + i>>8), byte(i)})
		sessions[i] = AcceptedConnection{Remote: netip.AddrPortFrom(remote, 5000), Local: netip.MustParseAddrPort("10.0.0.1:443")}
	}
	part := sessions[:len(sessions)/20]
	ordered := inOrder(before)
	begun := time.Now()
	for i := range part {
		if part[i].droppedBy(ordered) {
			t.Fatal("the rules of before drop a session")
		}
	}
	each := time.Since(begun) // the time of a twentieth of the sessions, compared with each rule
	begun = time.Now()
	if list := Disconnected(before, after, sessions); len(list) != 8 {
		t.Errorf("%d sessions are disconnected, want 8", len(list))
	}
	if list := Disconnected(after, before, sessions); len(list) != 0 {
		t.Errorf("%d sessions are disconnected by fewer rules", len(list))
	}
	if took := time.Since(begun); took > 10*each {
		t.Errorf("the comparison takes %v, as if each session was compared with each rule, which takes %v", took, 20*each)
	}
}
