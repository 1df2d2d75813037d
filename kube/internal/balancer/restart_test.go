package balancer

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
)

// TestMasterEnds ends the daemon of the MASTER just before the first election of a controller. The
// daemon may be restarting, so no other balancer becomes MASTER until restartTime has passed: two
// would answer for the VIPs, and the restarted one would refuse connections to Services that it
// does not have yet.
func TestMasterEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		what    string
		returns bool
		want    string
	}{
		{"the daemon returns", true, "0:1"},
		{"the daemon does not return", false, "0:0"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			remotes := []*remote{newRemote(t, nil, plain), newRemote(t, nil, plain)}
			slices.SortFunc(remotes, func(a, b *remote) int { return strings.Compare(a.URL, b.URL) })
			for i, role := range []string{backup, master} {
				remotes[i].Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"llb-inst0","state":"`+role+`"}`, "Content-Type", "application/json")
			}
			f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, remotes...)
			elected := newElection()
			if err := f.round(t); err != nil {
				t.Fatal(err)
			}
			ended := remotes[1]
			ended.down.Store(true)
			for _, poll := range []string{"not noticed", "noticed"} {
				f.electOnce(t.Context(), elected)
				if got := masters(t, f, remotes); got != "" {
					t.Errorf("while the end of the MASTER is %s, instances are at %q", poll, got)
				}
				_ = f.round(t)
			}
			if tc.returns {
				ended.down.Store(false)
				if err := f.round(t); err != nil {
					t.Fatal(err)
				}
			} else {
				elected.awaySince[ended.URL] = time.Now().Add(-restartTime)
			}
			f.electOnce(t.Context(), elected)
			if got := masters(t, f, remotes); got != tc.want {
				t.Errorf("after the restart, instances are at %q, want %q", got, tc.want)
			}
		})
	}
}

// TestMasterReturns makes the daemon of the MASTER return during the first election of a
// controller, which has not read its roles. No other balancer becomes MASTER.
func TestMasterReturns(t *testing.T) {
	t.Parallel()
	remotes := []*remote{newRemote(t, nil, plain), newRemote(t, nil, plain)}
	slices.SortFunc(remotes, func(a, b *remote) int { return strings.Compare(a.URL, b.URL) })
	for i, role := range []string{backup, master} {
		remotes[i].Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"llb-inst0","state":"`+role+`"}`, "Content-Type", "application/json")
	}
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, remotes...)
	returning := remotes[1]
	returning.down.Store(true)
	_ = f.round(t)
	elected := newElection()
	comeBack := func() {
		remotes[0].onRoles.Store(nil)
		returning.down.Store(false)
		m := f.members[returning.URL]
		_, err := m.sync(t.Context())
		m.recordSync(t.Context(), err)
	}
	remotes[0].onRoles.Store(&comeBack)
	f.electOnce(t.Context(), elected)
	if got := masters(t, f, remotes); got != "0:1" {
		t.Errorf("as the MASTER returns, instances are at %q", got)
	}
	f.electOnce(t.Context(), elected)
	if got := masters(t, f, remotes); got != "0:1" || elected.masters["llb-inst0"] != returning.URL {
		t.Errorf("after its return, instances are at %q, and the MASTER is %q", got, elected.masters)
	}
	if !elected.mayReturn(returning.URL, f.list()) {
		t.Error("a MASTER that has returned since the election began counts as away")
	}
}
