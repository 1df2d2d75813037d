package bgp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

const (
	nodeASN   = "4200000000"
	routerASN = "4200000001"
	secret    = "a secret of routers"
	patience  = 30 * time.Second
)

// frrConfig returns the configuration of the router, which runs on the client of the standard
// topology.
func frrConfig(password string) string {
	return fmt.Sprintf(`router bgp %s
 bgp router-id 100.100.100.1
 no bgp ebgp-requires-policy
 neighbor %s remote-as %s
 neighbor %s password %s
`, routerASN, node(), nodeASN, node(), password)
}

// node returns the address of the balancer, and router that of the router, on the link between
// them.
func node() string   { return netnstest.StandardNetworks()[0].GW4.String() }
func router() string { return netnstest.StandardNetworks()[0].V4.Addr().String() }

// neighbors returns the neighbors in the answer of GET.
func neighbors(t *testing.T, r *rig.Rig) (list v1.BgpNeighborList) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Loxicmd("get bgpneighbor -o json")), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func awaitState(t *testing.T, r *rig.Rig, up bool) v1.BgpNeighbor {
	t.Helper()
	var got v1.BgpNeighbor
	await.NoError(t, patience, func() error {
		list := neighbors(t, r).BgpNeiAttr
		if len(list) != 1 || (list[0].State == "Established") != up {
			return fmt.Errorf("the session is %+v, want up: %t", list, up)
		}
		got = list[0]
		return nil
	})
	return got
}

// TestObjects checks that commands create a session with a real router, that saved files contain it
// without its password, and that all commands show its state.
func TestObjects(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--bgp"}})
	frr, err := routers.StartFRR(r.Lab, r.Client, frrConfig(strings.ReplaceAll(secret, " ", "_")))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(strings.ReplaceAll(secret, " ", "_")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("create bgpneighbor %s %s --password-file=%s --hold-time=9", router(), routerASN, password)
	r.Loxicmd("set bgp --asn=%s --router-id=%s", nodeASN, node())
	got := awaitState(t, r, true)
	if got.Password == nil || *got.Password != "********" || got.Updowntime == "never" || got.RemoteAs != 4200000001 || got.HoldTime != "9s" {
		t.Errorf(`got %+v, want got.Password != nil, *got.Password == "********", `+
			`got.Updowntime != "never", got.RemoteAs == 4200000001, got.HoldTime == "9s"`,
			got)
	}
	if out := r.Loxicmd("get bgpnei"); !strings.Contains(out, "| "+router()) || !strings.Contains(out, "Established |") {
		t.Errorf("got %s, want an established session with %s", out, router())
	}
	r.EventuallyMetric(1, "bgp_session_up", "neighbor="+router())

	// A saved configuration keeps the session, and has no password.
	saved := filepath.Join(dir, "saved.yaml")
	text := r.Loxicmd("save -f -")
	if err := os.WriteFile(saved, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "kind: BGPNeighbor") || strings.Contains(text, "secret") || !strings.Contains(text, "********") {
		t.Errorf(`got %v, want "kind: BGPNeighbor" in text, no "secret" in text, "********" in text`, text)
	}
	if out := r.Loxicmd("apply -f %s", saved); !strings.Contains(out, "unchanged") {
		t.Errorf(`got %v, want "unchanged" in out`, out)
	}
	if again := awaitState(t, r, true); again.Flaps != 0 || !again.Since.Equal(got.Since) {
		t.Errorf("the session was restarted: %+v", again)
	}

	// The router is stopped and started.
	if err := frr.Configure("router bgp "+routerASN, "neighbor "+node()+" shutdown"); err != nil {
		t.Fatal(err)
	}
	down := awaitState(t, r, false)
	if down.Flaps != 1 || down.LastError == "" {
		t.Errorf("got %+v, want down.Flaps == 1, down.LastError not empty", down)
	}
	for _, event := range []string{"the session is established", "the session is down"} {
		r.EventuallyShows("describe bgpneighbor "+router(), event)
	}
	await.NoError(t, patience, func() error {
		if out := r.Loxicmd("get status --failed"); !strings.Contains(out, "bgpsession") {
			return fmt.Errorf("status: %s", out)
		}
		return nil
	})
	if out, _ := r.Command("doctor"); !strings.Contains(out, "BGP neighbor "+router()) {
		t.Errorf("got %s, want events of BGP neighbor %s", out, router())
	}
	if err := frr.Configure("router bgp "+routerASN, "no neighbor "+node()+" shutdown"); err != nil {
		t.Fatal(err)
	}
	awaitState(t, r, true)

	// Deleting the speaker ends the session with a reason.
	r.Loxicmd("delete bgp")
	awaitState(t, r, false)
	await.NoError(t, patience, func() error {
		n, err := frr.Neighbor(node())
		if err == nil && !strings.Contains(n.LastMessage, "switched off") {
			err = fmt.Errorf("FRR was not notified that the speaker was deleted: %+v", n)
		}
		return err
	})
	r.Loxicmd("delete bgpneighbor %s %s", router(), routerASN)
	if list := neighbors(t, r).BgpNeiAttr; len(list) != 0 {
		t.Errorf("got %+v, want no list", list)
	}

	withoutFlag(t, r)
}

// withoutFlag checks a daemon without --bgp: it keeps stored objects, reports them in statuses, and
// refuses new ones.
func withoutFlag(t *testing.T, r *rig.Rig) {
	t.Helper()
	r.Loxicmd("create bgpneighbor %s %s", router(), routerASN)
	r.Loxicmd("create bgpset prefix/vips --prefix=20.20.20.0/24:32..32")
	r.Loxicmd("create bgpset community/low --member=%s", "65000:100")
	r.Stop()
	r.SetArgs()
	r.Restart()
	const off = "BGP is off: start loxilb with --bgp"
	await.NoError(t, patience, func() error {
		if out := r.Loxicmd("get status --failed -o wide"); strings.Count(out, off) != 3 {
			return errors.New(out)
		}
		return nil
	})
	if out, err := r.Command("create", "bgpneighbor", "10.0.0.9", routerASN); err == nil || !strings.Contains(err.Error(), off) {
		t.Errorf("got %v %v, want an error, off in the error", out, err)
	}
	if list := neighbors(t, r).BgpNeiAttr; len(list) != 1 || list[0].State != "" {
		t.Errorf("got %+v, want 1 element, no list[0].State", list)
	}
	r.Loxicmd("delete bgpset community/low")
	r.Stop()
	r.SetArgs("--bgp")
	r.Restart()
	if out := r.Loxicmd("get bgpset"); !strings.Contains(out, "20.20.20.0/24 32..32") || strings.Contains(out, "low") {
		t.Errorf(`got %v, want "20.20.20.0/24 32..32" in out, no "low" in out`, out)
	}
}

// TestDetachRemovesLearnedRoutes checks that loxilb --detach removes the routes that the speaker of
// an ended daemon has left in the kernel, but not those of another speaker.
func TestDetachRemovesLearnedRoutes(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	for _, route := range []string{"198.51.100.0/24 metric 179", "0.0.0.0/0 metric 179", "2001:db8:99::/48 metric 179", "203.0.113.0/24 metric 20"} {
		via := router()
		if strings.Contains(route, ":") {
			via = netnstest.StandardNetworks()[0].V6.Addr().String()
		}
		labtest.Run(t, r.LB, append([]string{"ip", "route", "add", "proto", "bgp", "via", via}, strings.Fields(route)...)...)
	}
	if err := r.Daemon.DetachAll(); err != nil {
		t.Fatal(err)
	}
	left := labtest.Run(t, r.LB, "ip", "route", "show", "proto", "bgp") + labtest.Run(t, r.LB, "ip", "-6", "route", "show", "proto", "bgp")
	if strings.Count(left, "\n") != 1 || !strings.HasPrefix(left, "203.0.113.0/24 ") {
		t.Errorf("got routes %q, want only that of metric 20", left)
	}
}
