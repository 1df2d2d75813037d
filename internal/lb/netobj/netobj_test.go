package netobj

import (
	"strings"
	"testing"
)

// parsed returns the normal form of an object that was parsed, or the error.
func parsed[T Object[T]](o T, err error) string {
	if err != nil {
		return err.Error()
	}
	return o.Key() + " = " + o.String()
}

// TestParse checks that each kind parses the contract's words into a key that is the same for all
// spellings, or gives one sentence as its error.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{parsed(ParseAddress("eth0", "10.0.0.1/24")), "10.0.0.1/24 eth0 = 10.0.0.1/24 eth0"},
		{parsed(ParseAddress("eth0", "2001:DB8::1/64")), "2001:db8::1/64 eth0 = 2001:db8::1/64 eth0"},
		{parsed(ParseAddress("eth0", "10.0.0.1")), `ipAddress "10.0.0.1" is not an address with the length`},
		{parsed(ParseAddress("eth0", "10.0.0.1/33")), `ipAddress "10.0.0.1/33" is not an address with the length`},
		{parsed(ParseAddress("eth0", "::ffff:10.0.0.1/120")), "is not an address with the length"},
		{parsed(ParseAddress("eth0", "0.0.0.0/0")), "is not the address of one host"},
		{parsed(ParseAddress("eth0", "ff02::1/64")), "is not the address of one host"},
		{parsed(ParseAddress("", "10.0.0.1/24")), `dev "" is empty`},
		{parsed(ParseAddress("sixteen-letters-", "10.0.0.1/24")), "is not the name of an interface"},
		{parsed(ParseAddress("a/b", "10.0.0.1/24")), "is not the name of an interface"},
		{parsed(ParseAddress("..", "10.0.0.1/24")), "is not the name of an interface"},
		{parsed(ParseAddress("a b", "10.0.0.1/24")), "is not the name of an interface"},

		{parsed(ParseRoute("10.1.2.3/16", "10.0.0.1", "")), "10.1.0.0/16 = 10.1.0.0/16 via 10.0.0.1"},
		{parsed(ParseRoute("0.0.0.0/0", "10.0.0.1", "static")), "0.0.0.0/0 = 0.0.0.0/0 via 10.0.0.1"},
		{parsed(ParseRoute("2001:db8:1::/48", "2001:db8::1", "4")), "2001:db8:1::/48 = 2001:db8:1::/48 via 2001:db8::1"},
		{parsed(ParseRoute("10.1.0.0/16", "2001:db8::1", "")), "is of another IP version than 10.1.0.0/16"},
		{parsed(ParseRoute("2001:db8:1::/48", "fe80::1", "")), "a route has no interface"},
		{parsed(ParseRoute("224.0.0.0/4", "10.0.0.1", "")), "is a multicast address"},
		{parsed(ParseRoute("10.1.0.0/16", "", "")), `gateway is missing`},
		{parsed(ParseRoute("10.1.0.0", "10.0.0.1", "")), "is not an address with the length"},
		{parsed(ParseRoute("10.1.0.0/16", "10.0.0.1", "bgp")), `protocol "bgp" is not a protocol for routes of users`},

		{parsed(ParseNeighbor("10.0.0.5", "eth0", "00-11-22-AA-BB-CC")), "10.0.0.5 eth0 = 10.0.0.5 eth0 at 00:11:22:aa:bb:cc"},
		{parsed(ParseNeighbor("10.0.0.5", "eth0", "00:11:22:aa:bb")), `macAddress "00:11:22:aa:bb" is not a MAC address`},
		{parsed(ParseNeighbor("10.0.0.5", "eth0", "00:11-22:aa:bb:cc")), "is not a MAC address"},
		{parsed(ParseNeighbor("10.0.0.5", "eth0", "00:00:00:00:00:00")), "is zero"},
		{parsed(ParseNeighbor("10.0.0.5", "eth0", "ff:ff:ff:ff:ff:ff")), "is a multicast address"},
		{parsed(ParseNeighbor("fe80::1%eth0", "eth0", "00:11:22:aa:bb:cc")), "has a zone"},
		{parsed(ParseFDB("00:11:22:aa:bb:cc", "eth0")), "00:11:22:aa:bb:cc eth0 = 00:11:22:aa:bb:cc eth0"},
		{parsed(ParseFDB("33:33:00:00:00:01", "eth0")), "is a multicast address"},

		{parsed(ParseVLAN("vid", "100")), "100 = 100"},
		{parsed(ParseVLAN("vid", "0")), `vid "0" is not the number of a VLAN (allowed: 1 to 4094)`},
		{parsed(ParseVLAN("vid", "4095")), "is not the number of a VLAN"},
		{parsed(ParseVLAN("vid", "one")), `vid "one" is not the number of a VLAN`},
		{parsed(ParseVLANMember("100", "eth0", false)), "100 eth0 = 100 eth0"},
		{parsed(ParseVLANMember("100", "eth0", true)), "100 eth0 tagged = 100 eth0 tagged"},
		{parsed(ParseVLANMember("100", "long-name-12", true)), "is too long for a tagged member: long-name-12.100 would be an interface"},
		{parsed(ParseVLANMember("100", "long-name-12", false)), "100 long-name-12 = 100 long-name-12"},
		{parsed(ParseVLANMember("100", "vlan100", false)), "is the bridge of the VLAN itself"},

		{parsed(ParseVXLAN("78", "eth0")), "78 = 78 over eth0"},
		{parsed(ParseVXLAN("16777216", "eth0")), "is not the number of a VXLAN (allowed: 1 to 16777215)"},
		{parsed(ParseVXLAN("78", "")), `epIntf "" is empty`},
		{parsed(ParseVXLANPeer("78", "10.0.0.2")), "78 10.0.0.2 = 78 10.0.0.2"},
		{parsed(ParseVXLANPeer("78", "239.1.1.1")), "is not the address of one host"},
		{parsed(ParseVXLANPeer("0", "10.0.0.2")), `vxlanID "0" is not the number of a VXLAN`},

		{parsed(ParseNeighbor("0.0.0.0", "eth0", "00:11:22:aa:bb:cc")), "is not the address of one host"},
	} {
		if !strings.HasPrefix(c.got, c.want) && !(strings.Contains(c.got, c.want) && !strings.Contains(c.want, " = ")) {
			t.Errorf("parsing gives %q, want %q", c.got, c.want)
		}
		if strings.Contains(c.got, "\n") {
			t.Errorf("%q is more than a sentence", c.got)
		}
	}
}

// TestSatisfiedBy checks that a route's metric matters, but not its protocol.
func TestSatisfiedBy(t *testing.T) {
	t.Parallel()
	want, err := ParseRoute("10.1.0.0/16", "10.0.0.1", "static")
	if err != nil {
		t.Fatal(err)
	}
	have := want
	have.Protocol = 16
	if !want.SatisfiedBy(have) {
		t.Error("a route of DHCP does not satisfy it")
	}
	have.Metric = 100
	if want.SatisfiedBy(have) || have.Key() != "10.1.0.0/16 metric 100" {
		t.Error("a route of another metric is the same", have.Key())
	}
}
