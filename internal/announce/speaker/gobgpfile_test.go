package speaker

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb/bgp"
)

const gobgpConfig = `
[global.config]
  as = 64512
  router-id = "10.0.0.1"
[global.apply-policy.config]
  export-policy-list = ["low"]
  default-export-policy = "reject-route"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.0.0.254"
    peer-as = 4200000001
    auth-password = "secret"
  [neighbors.ebgp-multihop.config]
    enabled = true
    multihop-ttl = 8
  [neighbors.timers.config]
    hold-time = 9
    keepalive-interval = 3
  [neighbors.transport.config]
    passive-mode = true
    remote-port = 1179
[[defined-sets.prefix-sets]]
  prefix-set-name = "vips"
  [[defined-sets.prefix-sets.prefix-list]]
    ip-prefix = "20.20.20.0/24"
    masklength-range = "32..32"
[[policy-definitions]]
  name = "low"
  [[policy-definitions.statements]]
    name = "s1"
    [policy-definitions.statements.conditions.match-prefix-set]
      prefix-set = "vips"
      match-set-options = "any"
    [policy-definitions.statements.actions]
      route-disposition = "accept-route"
    [policy-definitions.statements.actions.bgp-actions]
      set-med = "+50"
      [policy-definitions.statements.actions.bgp-actions.set-community]
        options = "add"
        [policy-definitions.statements.actions.bgp-actions.set-community.set-community-method]
          communities-list = ["65000:100"]
`

// TestRead checks that a file of gobgpd becomes objects that are valid.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := FindFile(dir, "node1"); got != "" {
		t.Errorf("got %v, want nothing", got)
	}
	for _, name := range []string{"gobgp_loxilb.yaml", "gobgp.conf", "gobgpnode1.conf"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(gobgpConfig), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := FindFile(dir, "node1"); got != path {
			t.Errorf("%s: got %s, want %s", name, got, path)
		}
	}
	got, err := ReadFile(filepath.Join(dir, "gobgp.conf"))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Path:    filepath.Join(dir, "gobgp.conf"),
		Speaker: bgp.Speaker{ASN: 64512, RouterID: netip.MustParseAddr("10.0.0.1")},
		Neighbors: []bgp.Neighbor{{
			Addr: netip.MustParseAddr("10.0.0.254"), ASN: 4200000001, Port: 1179, Password: "secret", Multihop: 8, Hold: 9 * time.Second, Passive: true,
		}},
		Sets: []bgp.DefinedSet{{Type: bgp.PrefixSet, Name: "vips", Prefixes: []bgp.PrefixRule{{Prefix: "20.20.20.0/24", Lengths: "32..32"}}}},
		Policies: []bgp.Policy{{Name: "low", Statements: []bgp.Statement{{
			Name: "s1", Conditions: bgp.Conditions{Prefix: bgp.SetMatch{Set: "vips"}},
			Actions: bgp.Actions{Disposition: bgp.Accept, MED: "+50", Community: bgp.SetCommunity{Option: bgp.Add, Values: []string{"65000:100"}}},
		}}}},
		Applications: []bgp.Application{{Neighbor: bgp.AllNeighbors, Policies: []string{"low"}, Reject: true}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
	for _, object := range []interface{ Validate() error }{got.Speaker, got.Neighbors[0], got.Sets[0], got.Policies[0], got.Applications[0]} {
		if err := object.Validate(); err != nil {
			t.Error(err)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "gobgp_loxilb.yaml")); err == nil {
		t.Error("TOML was read as YAML")
	}
}

// TestReadPeerGroups checks that neighbors have the settings of their peer groups, and that one of
// a missing group is left out with a note.
func TestReadPeerGroups(t *testing.T) {
	t.Parallel()
	const groups = `
[global.config]
  as = 64512
  router-id = "10.0.0.1"
[[peer-groups]]
  [peer-groups.config]
    peer-group-name = "routers"
    peer-as = 65001
    auth-password = "secret"
  [peer-groups.timers.config]
    hold-time = 9
[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.0.0.253"
    peer-group = "routers"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.0.0.254"
    peer-group = "others"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.0.0.252"
    peer-as = 65002
`
	path := filepath.Join(t.TempDir(), "gobgp.conf")
	if err := os.WriteFile(path, []byte(groups), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []bgp.Neighbor{
		{Addr: netip.MustParseAddr("10.0.0.253"), ASN: 65001, Password: "secret", Hold: 9 * time.Second},
		{Addr: netip.MustParseAddr("10.0.0.252"), ASN: 65002},
	}
	if diff := cmp.Diff(want, got.Neighbors, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if note := []string{`a neighbor of peer group "others" is left out: there is no such group`}; !slices.Equal(got.Notes, note) {
		t.Errorf("notes are %q, want %q", got.Notes, note)
	}
}
