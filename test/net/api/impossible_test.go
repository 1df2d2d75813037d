package api_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/test/net/rig"
)

// TestImpossibleServices checks services in the state directory that the data path cannot apply,
// such as those of an earlier version with other limits. The daemon starts, and reports each of
// them with the reason. Users can change and delete them.
func TestImpossibleServices(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.Loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=31.31.31.1:1")
	const services = 600
	newAPI(r).call("POST", "config/loadbalancer", encode(t, v1.LoadbalanceRequest{LbAttr: mixedServices(services, -1)}))
	r.Stop()
	rings := storeRings(t, filepath.Join(r.Dir(), "state"))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	var failed v1.StatusList
	_, body := newAPI(r).call("GET", "status/objects?kind=service&failed=true", nil)
	if err := json.Unmarshal(body, &failed); err != nil {
		t.Fatal(err)
	}
	for _, s := range failed.StatusAttr {
		if !rings[s.Key] || !strings.Contains(s.Error, "lead back to the service itself") {
			t.Errorf(`got %+v, want rings[s.Key], "lead back to the service itself" in s.Error`, s)
		}
	}
	if len(failed.StatusAttr) != len(rings) {
		t.Errorf("%d failed, want %d", len(failed.StatusAttr), len(rings))
	}
	if out := r.Loxicmd("get status --kind=service -o json"); strings.Count(out, `"state": "applied"`) != services+1 {
		t.Errorf("%d applied, want %d", strings.Count(out, `"state": "applied"`), services+1)
	}
	r.WantAnswers("20.20.20.1:80", "ep1", "ep1")
	r.Loxicmd("create lb 20.20.20.2 --tcp=80:5001 --endpoints=31.31.31.1:1")
	r.WantAnswers("20.20.20.2:80", "ep1", "ep1")
	for key := range rings {
		vip, _, _ := strings.Cut(key, ":")
		r.Loxicmd("delete lb %s --tcp=80", vip)
	}
	if out := r.Loxicmd("get status --failed --kind=service -o json"); strings.Contains(out, `"failed"`) {
		t.Errorf("got %v, want no `\"failed\"` in out", out)
	}
}

// storeRings adds services to a state directory that form rings: each has the next one as its
// endpoint. The API would refuse them, but the daemon does not validate state files.
func storeRings(t *testing.T, dir string) map[string]bool {
	t.Helper()
	state, err := desired.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const n = 5
	keys := map[string]bool{}
	vip := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("20.20.66.%d", 1+i%n)) }
	_, _, err = state.Commit("rest", func(tx *store.Tx) error {
		for i := range n {
			s := lb.Service{
				Key:       lb.Key{VIP: vip(i), Port: 80, Protocol: lb.TCP},
				Endpoints: []lb.Endpoint{{Addr: vip(i + 1), Port: 80, Weight: 1}},
			}
			keys[s.Key.String()] = true
			if err := state.Services.Put(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	return keys
}
