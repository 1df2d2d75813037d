package speaker

import (
	"testing"

	"loxilb/internal/lb/bgp"
)

// TestValues checks that gobgp takes each set and community that is valid: one that it does not
// take would keep all policies from being applied.
func TestValues(t *testing.T) {
	t.Parallel()
	texts := []string{
		"10.0.0.2", "10.0.0.0/24", "10.0.0.2/24", "2001:db8::1", "fe80::1%eth0", "::ffff:10.0.0.2", "1", "4294967296", "65000:100", "70000:666", "65000:70000", "1:2:3",
		"1:2:4294967296", "1:2:3:4", "-1:1", "no-export", "NO_EXPORT", "hello", "*", "(", "^65000:.*$", "^65000_", "[_0-9]", "_*", "rt:*", "rt:.*", "RT:65000:100",
		"rt:70000:1", "rt:1.4464:1", "rt:1.70000:1", "rt:65000:4294967296", "rt:10.0.0.1:1", "rt:10.0.0.1:70000", "rt:10.0.0.256:1", "rt:2001:db8::1:1", "rt:::1:1",
		"rt:1:abc", "soo:1:1", "lb:65000:100", "lb:1.1:100", "lb:10.0.0.1:100", "encap:VXLAN", "encap:xx", "encap:1:2", "opaque:1:2",
	}
	valid := 0
	for _, text := range texts {
		for _, kind := range []bgp.SetType{bgp.NeighborSet, bgp.CommunitySet, bgp.ExtCommunitySet, bgp.ASPathSet, bgp.LargeCommunitySet} {
			d := bgp.DefinedSet{Type: kind, Name: "set", Members: []string{text}}
			if d.Validate() != nil {
				continue
			}
			valid++
			if err := (&policy{sets: []bgp.DefinedSet{d}}).check(); err != nil {
				t.Errorf("set of type %s with %q: got %v, want no error", kind, text, err)
			}
		}
		for _, option := range []string{bgp.Add, bgp.Remove, bgp.Replace} {
			c := bgp.SetCommunity{Option: option, Values: []string{text}}
			for name, a := range map[string]bgp.Actions{
				"community": {Community: c}, "extended community": {ExtCommunity: c}, "large community": {LargeCommunity: c}, "next hop": {NextHop: text},
			} {
				p := bgp.Policy{Name: "p", Statements: []bgp.Statement{{Name: "s", Actions: a}}}
				if p.Validate() != nil {
					continue
				}
				valid++
				all := policy{policies: []bgp.Policy{p}, apps: []bgp.Application{{Neighbor: bgp.AllNeighbors, Policies: []string{"p"}}}}
				if err := all.check(); err != nil {
					t.Errorf("%s %s %q: got %v, want no error", option, name, text, err)
				}
			}
		}
	}
	if valid < 100 {
		t.Errorf("got %d valid values, want 100 or more", valid)
	}
}
