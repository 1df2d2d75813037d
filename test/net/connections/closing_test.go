package connections_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// P36 Deleting a service ends its connections by a valid RST to both ends
func TestDeleteResets(t *testing.T) {
	t.Parallel()
	const each = 20
	r := rig.SharedAfter(t, enableStrictRPF)
	ended := serveCountedEcho(r)
	var all []*net.TCPConn
	for _, address := range createTranslations(r, "") {
		all = append(all, openConnections(r, address, each)...)
	}
	r.Loxicmd("create lb 20.20.20.2 --tcp=80:7 --endpoints=%s", rig.Endpoints4())
	stop := keepUsing(t, openConnections(r, rig.Join("20.20.20.2", 80), 3))
	r.Loxicmd("delete lb %s --tcp=%s", rig.VIP4, "80,81,82,85,87")
	r.Loxicmd("delete lb %s --tcp=%s", rig.VIP6, "83,84,86")
	if took := awaitResets(t, all, rig.Patience); took > rig.Patience/2 {
		t.Errorf("%d ends were notified after %v", len(all), took)
	}
	ended.wantResets(t, len(all))
	stop()
}

// P37 Connections of a removed endpoint continue, or are reset immediately or after a configured
// time, as their service is configured, also across a restart
func TestOnRemove(t *testing.T) {
	t.Parallel()
	const all = 30
	r := rig.Shared(t)
	ended := serveCountedEcho(r, 8, 9) // a port for each service: the client may use a source port for two services
	at := map[string][]*net.TCPConn{}
	var others []*net.TCPConn
	for port, flags := range map[int]string{80: "--on-remove=keep", 81: "--on-remove=drain --drain-time=3", 82: "--on-remove=reset"} {
		r.Loxicmd("create lb %s --tcp=%d:%d --endpoints=%s %s", rig.VIP4, port, port-73, rig.Endpoints4(), flags)
		conns := openConnections(r, rig.Join(rig.VIP4, port), all)
		here, rest := splitByEndpoint(r, "31.31.31.1", conns)
		if len(here) != all/3 {
			t.Fatalf("%d of %d connections are at the endpoint", len(here), all)
		}
		at[flags], others = here, append(others, rest...)
	}
	stop := keepUsing(t, others)
	start := time.Now()
	for _, port := range []int{80, 81, 82} {
		r.Loxicmd("create lb %s --tcp=%d:%d --endpoints=31.31.31.1:1 --detachEP", rig.VIP4, port, port-73)
	}
	if took := awaitResets(t, at["--on-remove=reset"], rig.Patience); took > 3*time.Second {
		t.Errorf("reset after %v", took)
	}
	r.Kill()
	r.Restart()
	for _, c := range at["--on-remove=drain --drain-time=3"] {
		if time.Since(start) < 2*time.Second {
			if err := rig.Exchange(c, "still here"); err != nil {
				t.Error(err)
			}
		}
	}
	awaitResets(t, at["--on-remove=drain --drain-time=3"], rig.Patience)
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("drain: reset after %v", took)
	}
	ended.wantResets(t, 2*all/3)
	for _, c := range at["--on-remove=keep"] {
		if err := rig.Exchange(c, "still here"); err != nil {
			t.Error(err)
		}
	}
	stop()
}

// P38 Connections of an endpoint that is down continue, or both ends are notified, as their service
// is configured
func TestOnFail(t *testing.T) {
	t.Parallel()
	const all = 30
	r := rig.Shared(t)
	ended := serveCountedEcho(r, 8)
	r.Loxicmd("create lb %s --tcp=80:7 --endpoints=%s --monitor", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=81:8 --endpoints=%s --monitor --on-fail=reset", rig.VIP4, rig.Endpoints4())
	kept := openConnections(r, rig.Join(rig.VIP4, 80), all)
	gone, others := splitByEndpoint(r, "32.32.32.1", openConnections(r, rig.Join(rig.VIP4, 81), all))
	if len(gone) != all/3 {
		t.Fatalf("%d of %d connections are at the endpoint", len(gone), all)
	}
	stop := keepUsing(t, append(kept, others...))
	r.ReportHostState("32.32.32.1", "red")
	awaitResets(t, gone, rig.Patience)
	ended.wantResets(t, len(gone))
	r.ReportHostState("32.32.32.1", "green")
	r.EventuallyShows("get ep", "32.32.32.1_tcp_8", " up ")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if here, _ := splitByEndpoint(r, "32.32.32.1", openConnections(r, rig.Join(rig.VIP4, 81), 3)); len(here) == 0 {
			return fmt.Errorf("the endpoint does not get connections again")
		}
		return nil
	})
	stop()
}

// P39 UDP flows of an endpoint that is down move to another one with their next packet
func TestFlowsOfFailedEndpoint(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s --monitor --probetype=ping", rig.VIP4, rig.Endpoints4())
	flows := make([]net.Conn, 6)
	for i := range flows {
		flows[i] = rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
		if _, err := rig.Datagram(flows[i], "hello"); err != nil {
			t.Fatal(err)
		}
	}
	failed := r.Endpoints[0].Name
	r.ReportHostState("31.31.31.1", "red")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		for i, c := range flows {
			if got, err := rig.Datagram(c, "hello"); err != nil || strings.HasPrefix(got, failed) {
				return fmt.Errorf("flow %d: %q, %w", i, got, err)
			}
		}
		return nil
	})
}
