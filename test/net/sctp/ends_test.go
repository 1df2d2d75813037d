package sctp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/sctptest"
)

const port = 5001

// serve starts an SCTP server on each endpoint.
func serve(t *testing.T, r *rig.Rig) (servers []*sctptest.Peer) {
	t.Helper()
	for _, h := range r.Endpoints {
		servers = append(servers, sctptest.Serve(t, h, port))
	}
	return servers
}

// translations returns a service for each kind of translation. Their ports begin at 2020.
func translations() []struct{ vip, endpoints, flags string } {
	return []struct{ vip, endpoints, flags string }{
		{rig.VIP4, rig.Endpoints4(), ""},
		{rig.VIP4, rig.Endpoints4(), "--mode=onearm"},
		{rig.VIP4, rig.Endpoints4(), "--mode=fullnat"},
		{rig.VIP6, rig.Endpoints6(), ""},
		{rig.VIP6, rig.Endpoints6(), "--mode=onearm"},
		{rig.VIP6, rig.Endpoints6(), "--mode=fullnat"},
		{rig.VIP4, rig.Endpoints6(), ""},
		{rig.VIP6, rig.Endpoints4(), ""},
	}
}

// createTranslations creates the services of translations.
func createTranslations(r *rig.Rig) {
	r.T.Helper()
	for i, s := range translations() {
		r.Loxicmd("create lb %s --sctp=%d:%d --endpoints=%s %s", s.vip, 2020+i, port, s.endpoints, s.flags)
	}
}

// wantEnds waits until n associations of the servers have ended by ABORT, and none otherwise.
func wantEnds(t *testing.T, servers []*sctptest.Peer, n int) {
	t.Helper()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		aborted, closed := 0, 0
		for _, s := range servers {
			aborted, closed = aborted+s.Count("aborted"), closed+s.Count("closed")
		}
		if aborted != n || closed != 0 {
			return fmt.Errorf("%d associations of the endpoints were aborted, %d closed; want %d, 0", aborted, closed, n)
		}
		return nil
	})
}

// TestKill checks, for each kind of translation, that kill ct ends the selected associations by
// ABORT to both sides, and no others.
func TestKill(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	servers, client := serve(t, r), sctptest.Connect(t, r.Client)
	createTranslations(r)
	r.Loxicmd("create lb 20.20.20.2 --sctp=2020:%d --endpoints=%s", port, rig.Endpoints4())
	all := translations()
	for i, s := range all {
		client.Open(i, s.vip, 2020+i)
	}
	client.Open(len(all), "20.20.20.2", 2020)
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		out, want := r.Loxicmd("kill ct --vip=%s", vip), "4 connections ended, 4 of them with a RST or ABORT to both sides"
		if !strings.HasPrefix(out, want) {
			t.Errorf("kill ct --vip=%s: %q, want %q", vip, out, want)
		}
	}
	for i := range all {
		client.Expect(i, "aborted")
	}
	wantEnds(t, servers, len(all))
	client.Exchange(len(all), "still-here")
	client.Close(len(all))
}

// TestDrain checks that associations of a drained endpoint continue until the deadline, also during
// a restart of the daemon. They then end by ABORT to both sides, at the configured rate.
// Associations of other endpoints continue.
func TestDrain(t *testing.T) {
	t.Parallel()
	const n, rate = 30, 5
	r := rig.Shared(t)
	servers, client := serve(t, r), sctptest.Connect(t, r.Client)
	r.Loxicmd("create lb %s --sctp=2020:%d --endpoints=%s", rig.VIP4, port, rig.Endpoints4())
	at := map[string][]int{}
	for i := range n {
		name := client.Open(i, rig.VIP4, 2020)
		at[name] = append(at[name], i)
	}
	if len(at["ep1"]) != n/3 {
		t.Fatalf("associations by endpoint: %v", at)
	}
	r.Loxicmd("drain endpoint 31.31.31.1:%d", port)
	r.EventuallyShows("get lb -o wide", "31.31.31.1", " draining ")
	r.Kill()
	r.Restart()
	for _, i := range at["ep1"] {
		client.Exchange(i, "drained")
	}
	start := time.Now()
	r.Loxicmd("drain endpoint 31.31.31.1:%d --deadline=1s --rate=%d", port, rate)
	for _, i := range at["ep1"] {
		client.Expect(i, "aborted")
	}
	if least := time.Second + (n/3/rate-1)*time.Second; time.Since(start) < least {
		t.Errorf("%d associations ended after %v, want %d a second, a second later", n/3, time.Since(start), rate)
	}
	wantEnds(t, servers, n/3)
	for _, i := range append(at["ep2"], at["ep3"]...) {
		client.Exchange(i, "others")
	}
}

// TestRemoved checks that associations of a removed endpoint continue, or end immediately with
// --on-remove=reset.
func TestRemoved(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	servers, client := serve(t, r), sctptest.Connect(t, r.Client)
	create := func(vip, endpoints string) {
		t.Helper()
		r.Loxicmd("create lb %s --sctp=2020:%d --endpoints=%s --on-remove=%s", vip, port, endpoints,
			map[string]string{"20.20.20.1": "keep", "20.20.20.2": "reset"}[vip])
	}
	for i, vip := range []string{"20.20.20.1", "20.20.20.2"} {
		create(vip, "31.31.31.1:1")
		client.Open(i, vip, 2020)
		create(vip, "32.32.32.1:1")
	}
	client.Expect(1, "aborted")
	wantEnds(t, servers, 1)
	client.Exchange(0, "still-here")
}
