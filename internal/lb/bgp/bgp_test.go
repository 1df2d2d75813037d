package bgp_test

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// refused checks that an object is refused by this sentence; "": that it is valid.
func refused(t *testing.T, object interface{ Validate() error }, want string) {
	t.Helper()
	err := object.Validate()
	if want == "" {
		if err != nil {
			t.Errorf("%+v: %v", object, err)
		}
		return
	}
	if fe := (*lb.FieldError)(nil); !errors.As(err, &fe) || err.Error() != want {
		t.Errorf("%+v\n got %v\nwant %s", object, err, want)
	}
}

// TestSpeaker checks which speakers are valid.
func TestSpeaker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    bgp.Speaker
		want string
	}{
		{bgp.Speaker{ASN: 4200000000}, ""},
		{bgp.Speaker{ASN: 65000, RouterID: addr("10.0.0.1"), Port: 1179, GracefulRestart: 4095 * time.Second}, ""},
		{bgp.Speaker{}, `localAs "0" is not an AS number (allowed: 1 to 4294967295, but not 23456)`},
		{bgp.Speaker{ASN: 23456}, `localAs "23456" is reserved (RFC 6793) (allowed: 1 to 4294967295, but not 23456)`},
		{bgp.Speaker{ASN: 1, RouterID: addr("0.0.0.0")}, `routerId "0.0.0.0" is not a router ID (allowed: an IPv4 address other than 0.0.0.0)`},
		{bgp.Speaker{ASN: 1, RouterID: addr("::1")}, `routerId "::1" is not a router ID (allowed: an IPv4 address other than 0.0.0.0)`},
		{bgp.Speaker{ASN: 1, GracefulRestart: 4096 * time.Second}, `gracefulRestart "1h8m16s" is out of range (allowed: 0s (none) to 4095s, whole seconds)`},
		{bgp.Speaker{ASN: 1, GracefulRestart: time.Millisecond}, `gracefulRestart "1ms" is not whole seconds (allowed: 0s (none) to 4095s, whole seconds)`},
	} {
		refused(t, c.s, c.want)
	}
}

// TestNeighbor checks which neighbors are valid.
func TestNeighbor(t *testing.T) {
	t.Parallel()
	const second, unicast = time.Second, "the unicast address of a router"
	peer := addr("10.0.0.2")
	for _, c := range []struct {
		n    bgp.Neighbor
		want string
	}{
		{bgp.Neighbor{Addr: peer, ASN: 65001}, ""},
		{
			bgp.Neighbor{
				Addr: addr("2001:db8::1"), ASN: 4294967295, Source: addr("2001:db8::2"), Multihop: 8, Password: "a b",
				Hold: 3 * second, Keepalive: second, Retry: second, Passive: true,
			},
			"",
		},
		{bgp.Neighbor{Addr: addr("fe80::1%eth0"), ASN: 1, BFD: bgp.BFD{Interval: 100 * time.Millisecond, Multiplier: 3}}, ""},
		{bgp.Neighbor{Interface: "eth0", ASN: 1}, ""},
		{bgp.Neighbor{ASN: 1}, `ipAddress is missing (allowed: ` + unicast + `, or interface for a neighbor without an address)`},
		{bgp.Neighbor{Interface: "eth/0", ASN: 1}, `interface "eth/0" is not the name of an interface (allowed: 1 to 15 characters without /, : and space)`},
		{bgp.Neighbor{Addr: peer, Interface: "eth0", ASN: 1}, `interface "eth0" cannot be combined with ipAddress 10.0.0.2 (allowed: one of the two)`},
		{bgp.Neighbor{Addr: addr("224.0.0.1"), ASN: 1}, `ipAddress "224.0.0.1" is not the address of a router (allowed: ` + unicast + `)`},
		{bgp.Neighbor{Addr: addr("fe80::1"), ASN: 1}, `ipAddress "fe80::1" is link-local, but has no interface (allowed: fe80::1%INTERFACE)`},
		{bgp.Neighbor{Addr: addr("2001:db8::1%eth0"), ASN: 1}, `ipAddress "2001:db8::1%eth0" has an interface, but is not link-local (allowed: 2001:db8::1)`},
		{bgp.Neighbor{Addr: addr("::ffff:10.0.0.2"), ASN: 1}, `ipAddress "::ffff:10.0.0.2" is an IPv4 address written as IPv6 (allowed: 10.0.0.2)`},
		{bgp.Neighbor{Addr: peer}, `remoteAs "0" is not an AS number (allowed: 1 to 4294967295, but not 23456)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, Source: addr("::1")}, `source "::1" is of another IP version than 10.0.0.2 (allowed: an address of this node)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, Source: addr("0.0.0.0")}, `source "0.0.0.0" is not the source of a session (allowed: an address of this node)`},
		{bgp.Neighbor{Interface: "eth0", ASN: 1, Source: peer}, `source "10.0.0.2" cannot be combined with interface eth0 (allowed: none)`},
		{bgp.Neighbor{Interface: "eth0", ASN: 1, Multihop: 1}, `multihopTTL "1" cannot be combined with a neighbor on a link (allowed: 0)`},
		{bgp.Neighbor{Interface: "eth0", ASN: 1, Multihop: 2}, `multihopTTL "2" cannot be combined with a neighbor on a link (allowed: 0)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, Password: strings.Repeat("x", 81)}, `password "(hidden)" has 81 bytes (allowed: up to 80 printable ASCII characters, other than ********)`},
		{
			bgp.Neighbor{Addr: peer, ASN: 1, Password: "pässword"},
			`password "(hidden)" has characters that other routers might not accept (allowed: up to 80 printable ASCII characters, other than ********)`,
		},
		{bgp.Neighbor{Addr: peer, ASN: 1, Hold: 2 * second}, `holdTime "2s" is out of range (allowed: 3s to 65535s, whole seconds, or 0s for 90s)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, Hold: 3500 * time.Millisecond}, `holdTime "3.5s" is not whole seconds (allowed: 3s to 65535s, whole seconds, or 0s for 90s)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, Keepalive: 90 * second}, `keepaliveTime "1m30s" is not less than holdTime 1m30s (allowed: a third of holdTime)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, Retry: -second}, `connectRetry "-1s" is out of range (allowed: 1s to 65535s, whole seconds, or 0s for the default)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, BFD: bgp.BFD{Multiplier: 3}}, `bfd.multiplier "3" needs bfd.interval (allowed: both, or none)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, BFD: bgp.BFD{Interval: time.Millisecond}}, `bfd.interval "1ms" is out of range (allowed: 10ms to 1m, whole milliseconds)`},
		{bgp.Neighbor{Addr: peer, ASN: 1, Multihop: 2, BFD: bgp.BFD{Interval: second}}, `bfd.interval "1s" cannot be combined with multihop: BFD here covers one hop (RFC 5881) (allowed: 0s)`},
	} {
		refused(t, c.n, c.want)
	}
	if got := (bgp.Neighbor{Interface: "eth0"}).Key(); got != "eth0" {
		t.Errorf(`got %v, want "eth0"`, got)
	}
	if _, err := bgp.ParseNeighborAddr("10.0.0.300"); err == nil || err.Error() != `ipAddress "10.0.0.300" is not an IP address (allowed: an IPv4 or IPv6 address)` {
		t.Errorf("got %v, want an error, "+
			"the error `ipAddress \"10.0.0.300\" is not an IP address (allowed: an IPv4 or IPv6 address)`",
			err)
	}
}

// TestKeepPassword checks that a shown neighbor keeps the stored password.
func TestKeepPassword(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ wanted, stored, want string }{
		{"new", "old", "new"}, {"", "old", ""}, {bgp.HiddenPassword, "old", "old"},
	} {
		got, err := bgp.Neighbor{Password: c.wanted}.KeepPassword(bgp.Neighbor{Password: c.stored})
		if got.Password != c.want || err != nil {
			t.Errorf("%+v: got password %q, %v, want %q", c, got.Password, err, c.want)
		}
	}
	_, err := bgp.Neighbor{Addr: addr("10.0.0.2"), Password: bgp.HiddenPassword}.KeepPassword(bgp.Neighbor{})
	const want = `password "********" stands for a stored password, and neighbor 10.0.0.2 has none ` +
		`(allowed: up to 80 printable ASCII characters, other than ********)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want the error %q", err, want)
	}
}

// TestDefinedSet checks which sets are valid.
func TestDefinedSet(t *testing.T) {
	t.Parallel()
	prefixes := func(list ...bgp.PrefixRule) bgp.DefinedSet {
		return bgp.DefinedSet{Type: bgp.PrefixSet, Name: "a", Prefixes: list}
	}
	set := func(kind bgp.SetType, members ...string) bgp.DefinedSet {
		return bgp.DefinedSet{Type: kind, Name: "a", Members: members}
	}
	for _, c := range []struct {
		d    bgp.DefinedSet
		want string
	}{
		{prefixes(bgp.PrefixRule{"10.0.0.0/8", "24..32"}, bgp.PrefixRule{"11.0.0.0/8", ""}), ""},
		{set(bgp.NeighborSet, "10.0.0.1", "10.0.0.0/24", "::1"), ""},
		{set(bgp.CommunitySet, "65000:100", "^65000:", "no-export"), ""},
		{set(bgp.ExtCommunitySet, "rt:65000:100"), ""},
		{set(bgp.ASPathSet, "^65000_", "_65001$"), ""},
		{set(bgp.LargeCommunitySet, "65000:1:2"), ""},
		{set("prefx", "x"), `definedType "prefx" is not a type of set; did you mean prefix? (allowed: prefix, neighbor, community, extcommunity, aspath, largecommunity)`},
		{bgp.DefinedSet{Type: bgp.ASPathSet, Members: []string{"1"}}, `name is missing (allowed: a name)`},
		{bgp.DefinedSet{Type: bgp.ASPathSet, Name: "a/b"}, `name "a/b" has a slash (allowed: up to 384 printable characters without slashes)`},
		{prefixes(), `prefixList is missing or empty (allowed: prefixes, as in 10.0.0.0/8)`},
		{set(bgp.PrefixSet, "10.0.0.0/8"), `List "10.0.0.0/8" is not allowed in a set of type prefix (allowed: prefixList)`},
		{
			bgp.DefinedSet{Type: bgp.ASPathSet, Name: "a", Prefixes: []bgp.PrefixRule{{"10.0.0.0/8", ""}}},
			`prefixList "10.0.0.0/8" is not allowed in a set of type aspath (allowed: List)`,
		},
		{set(bgp.ASPathSet), `List is missing or empty (allowed: members of a set of type aspath)`},
		{prefixes(bgp.PrefixRule{"10.0.0.1/8", ""}), `prefixList.ipPrefix "10.0.0.1/8" has bits after its length (allowed: 10.0.0.0/8)`},
		{prefixes(bgp.PrefixRule{"10.0.0.0", ""}), `prefixList.ipPrefix "10.0.0.0" is not a prefix (allowed: an IPv4 or IPv6 prefix, as in 10.0.0.0/8)`},
		{prefixes(bgp.PrefixRule{"10.0.0.0/8", "7..32"}), `prefixList.masklengthRange "7..32" is not a range of lengths of 10.0.0.0/8 (allowed: FROM..TO within 8..32)`},
		{prefixes(bgp.PrefixRule{"10.0.0.0/8", "32"}), `prefixList.masklengthRange "32" is not a range of lengths of 10.0.0.0/8 (allowed: FROM..TO within 8..32)`},
		{
			prefixes(bgp.PrefixRule{"10.0.0.0/8", ""}, bgp.PrefixRule{"::/0", ""}),
			`prefixList.ipPrefix "::/0" is of another IP version than the others (allowed: one set for each IP version)`,
		},
		{set(bgp.NeighborSet, "a"), `List "a" is not an address or prefix (allowed: IPv4 or IPv6 addresses and prefixes)`},
		{set(bgp.NeighborSet, "fe80::1%eth0"), `List "fe80::1%eth0" is not an address or prefix (allowed: IPv4 or IPv6 addresses and prefixes)`},
		{set(bgp.ExtCommunitySet, "rt:*"), `List "rt:*" is neither a value nor a regular expression (allowed: values such as 65000:100, or regular expressions)`},
		{set(bgp.ExtCommunitySet, "65000:100"), `List "65000:100" is not an extended community (allowed: rt, soo, encap or lb, as in rt:65000:100)`},
		{set(bgp.CommunitySet, "("), `List "(" is neither a value nor a regular expression (allowed: values such as 65000:100, or regular expressions)`},
	} {
		refused(t, c.d, c.want)
	}
}

// TestPolicy checks which policies are valid.
func TestPolicy(t *testing.T) {
	t.Parallel()
	one := func(c bgp.Conditions, a bgp.Actions) bgp.Policy {
		return bgp.Policy{Name: "p", Statements: []bgp.Statement{{Name: "s", Conditions: c, Actions: a}}}
	}
	const conditions, actions = "statements[0].conditions.", "statements[0].actions."
	for _, c := range []struct {
		p    bgp.Policy
		want string
	}{
		{bgp.Policy{Name: "p"}, ""},
		{
			one(bgp.Conditions{
				Prefix: bgp.SetMatch{"ps", "invert"}, Community: bgp.SetMatch{"cs", "all"}, Families: []string{"ipv4-unicast"},
				ASPathLength: bgp.Length{"ge", 3}, NextHops: []string{"10.0.0.1", "10.0.0.0/8"}, RPKI: "valid", RouteType: "external",
			}, bgp.Actions{
				Disposition: bgp.Accept, MED: "+50", NextHop: "self", Community: bgp.SetCommunity{"add", []string{"65000:1"}},
				Prepend: bgp.Prepend{"last-as", 3},
			}), "",
		},
		{bgp.Policy{}, `name is missing (allowed: a name)`},
		{bgp.Policy{Name: "p", Statements: []bgp.Statement{{}}}, `statements[0].name is missing (allowed: a name)`},
		{bgp.Policy{Name: "p", Statements: []bgp.Statement{{Name: "s"}, {Name: "s"}}}, `statements[1].name "s" is the name of another statement (allowed: a name of its own for each)`},
		{one(bgp.Conditions{Prefix: bgp.SetMatch{"ps", "all"}}, bgp.Actions{}), conditions + `matchPrefixSet "all" is not a way to match (allowed: any, invert)`},
		{one(bgp.Conditions{ASPath: bgp.SetMatch{"", "all"}}, bgp.Actions{}), conditions + `bgpConditions.matchAsPathSet "all" has no set (allowed: the name of a set of type aspath)`},
		{
			one(bgp.Conditions{Prefix: bgp.SetMatch{"p/s", "any"}}, bgp.Actions{}),
			conditions + `matchPrefixSet "p/s" has a slash (allowed: up to 384 printable characters without slashes)`,
		},
		{
			one(bgp.Conditions{Families: []string{"ipv4"}}, bgp.Actions{}),
			conditions + `bgpConditions.afiSafiIn "ipv4" is not known; did you mean ipv4-unicast? (allowed: ipv4-unicast, ipv6-unicast)`,
		},
		{
			one(bgp.Conditions{NextHops: []string{"x"}}, bgp.Actions{}),
			conditions + `bgpConditions.nextHopInList "x" is not an address or prefix (allowed: IPv4 or IPv6 addresses and prefixes)`,
		},
		{one(bgp.Conditions{ASPathLength: bgp.Length{"", 3}}, bgp.Actions{}), conditions + `bgpConditions.asPathLength.operator "" is not known (allowed: eq, ge, le)`},
		{
			one(bgp.Conditions{RouteType: "internl"}, bgp.Actions{}),
			conditions + `bgpConditions.routeType "internl" is not known; did you mean internal? (allowed: internal, external, local)`,
		},
		{one(bgp.Conditions{}, bgp.Actions{Disposition: "accept"}), actions + `routeDisposition "accept" is not known; did you mean accept-route? (allowed: accept-route, reject-route)`},
		{one(bgp.Conditions{}, bgp.Actions{MED: "x"}), actions + `bgpActions.setMed "x" is not a metric (allowed: 0 to 4294967295, +N or -N)`},
		{one(bgp.Conditions{}, bgp.Actions{NextHop: "me"}), actions + `bgpActions.setNextHop "me" is not a next hop (allowed: an IP address, self, unchanged or peer-address)`},
		{
			one(bgp.Conditions{}, bgp.Actions{ExtCommunity: bgp.SetCommunity{"add", []string{"1:2"}}}),
			actions +
				`bgpActions.setExtCommunity.setCommunityMethod "1:2" is not a community (allowed: rt, soo, encap or lb, as in rt:65000:100, rt:192.0.2.1:100,` +
				` rt:1.14464:100 (AS 80000), encap:VXLAN)`,
		},
		{
			one(bgp.Conditions{}, bgp.Actions{LargeCommunity: bgp.SetCommunity{"add", []string{"1:2"}}}),
			actions + `bgpActions.setLargeCommunity.setCommunityMethod "1:2" is not a community (allowed: three numbers to 4294967295, as in 65000:1:100)`,
		},
		{one(bgp.Conditions{}, bgp.Actions{MED: "+-5"}), actions + `bgpActions.setMed "+-5" is not a metric (allowed: 0 to 4294967295, +N or -N)`},
		{
			one(bgp.Conditions{}, bgp.Actions{NextHop: "fe80::1%eth0"}),
			actions + `bgpActions.setNextHop "fe80::1%eth0" is not a next hop (allowed: an IP address, self, unchanged or peer-address)`,
		},
		{one(bgp.Conditions{}, bgp.Actions{Community: bgp.SetCommunity{"set", nil}}), actions + `bgpActions.setCommunity.options "set" is not known (allowed: add, remove, replace)`},
		{one(bgp.Conditions{}, bgp.Actions{Prepend: bgp.Prepend{"x", 1}}), actions + `bgpActions.setAsPathPrepend.as "x" is not an AS number (allowed: 1 to 4294967295, or last-as)`},
		{one(bgp.Conditions{}, bgp.Actions{Prepend: bgp.Prepend{"1", 0}}), actions + `bgpActions.setAsPathPrepend.repeatN "0" repeats nothing (allowed: 1 to 255)`},
	} {
		refused(t, c.p, c.want)
	}
	refs := one(bgp.Conditions{Prefix: bgp.SetMatch{Set: "a"}, ASPath: bgp.SetMatch{Set: "b"}}, bgp.Actions{}).Sets()
	if len(refs) != 2 || refs[0].Key() != "prefix/a" || refs[1].Key() != "aspath/b" {
		t.Errorf(`got %v, want 2 elements, refs[0].Key() == "prefix/a", refs[1].Key() == "aspath/b"`, refs)
	}
}

// numbered returns this many names of policies.
func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	return names
}

// TestApplication checks which applications are valid, and how policies are added and removed.
func TestApplication(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a    bgp.Application
		want string
	}{
		{bgp.Application{Neighbor: "global", Policies: []string{"p"}}, ""},
		{bgp.Application{Neighbor: "10.0.0.2", Import: true, Reject: true}, ""},
		{bgp.Application{Neighbor: "x", Policies: []string{"p"}}, `ipAddress "x" is not the address of a neighbor (allowed: its address, or global for all neighbors)`},
		{bgp.Application{Neighbor: "global"}, `policies is missing or empty (allowed: names of policies, or routeAction reject)`},
		{bgp.Application{Neighbor: "global", Policies: numbered(1024)}, ""},
		{bgp.Application{Neighbor: "global", Policies: numbered(1025)}, `policies "1025" is too many (allowed: up to 1024)`},
		{bgp.Application{Neighbor: "global", Policies: []string{"p", "p"}}, `policies "p" is listed twice (allowed: each policy once)`},
	} {
		refused(t, c.a, c.want)
	}
	a := bgp.Application{Neighbor: "global", Policies: []string{"p", "q"}}
	if got := a.With(bgp.Application{Policies: []string{"q", "r"}, Reject: true}); strings.Join(got.Policies, " ") != "p q r" || !got.Reject {
		t.Errorf(`got %+v, want got.Policies == "p q r", got.Reject`, got)
	}
	if got := a.Without([]string{"p"}); strings.Join(got.Policies, " ") != "q" || got.Key() != "global/export" {
		t.Errorf(`got %+v, want got.Policies == "q", got.Key() == "global/export"`, got)
	}
}
