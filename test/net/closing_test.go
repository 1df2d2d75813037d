package net_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest/labtest"
)

// hostState is an agent's word about what is probed at an address.
func (r *rig) hostState(address, state string) {
	r.t.Helper()
	resp, err := r.LB.HTTPClient(patience).Post("http://127.0.0.1:11111/netlox/v1/config/endpointhoststate", "application/json",
		strings.NewReader(fmt.Sprintf(`{"hostName":%q,"state":%q}`, address, state)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s is %s: %s %s, %v", address, state, resp.Status, body, err)
	}
}

// P36 who deletes a service cuts no connection in silence: both ends of each are told by a RST that counts
func TestDeleteTells(t *testing.T) {
	t.Parallel()
	const each = 20
	r := newRig(t, options{before: strictSources})
	ended := r.serveEnds()
	var all []*net.TCPConn
	for _, address := range r.endsServices("") {
		all = append(all, r.open(address, each)...)
	}
	r.loxicmd("create lb 20.20.20.2 --tcp=80:7 --endpoints=%s", endpoints4())
	stop := busy(t, r.open(join("20.20.20.2", 80), 3))
	r.loxicmd("delete lb %s --tcp=%s", vip4, "80,81,82,85,87")
	r.loxicmd("delete lb %s --tcp=%s", vip6, "83,84,86")
	if took := allReset(t, all, patience); took > patience/2 {
		t.Errorf("%d ends were told after %v", len(all), took)
	}
	ended.want(t, len(all))
	stop()
}

// P37 what becomes of the connections of an endpoint that is taken out is as the service says, over a restart too: they go on, are reset
// after a while, or at once
func TestOnRemove(t *testing.T) {
	t.Parallel()
	const all = 30
	r := newRig(t, options{})
	ended := r.serveEnds()
	at := map[string][]*net.TCPConn{}
	var others []*net.TCPConn
	for port, flags := range map[int]string{80: "--on-remove=keep", 81: "--on-remove=drain --drain-time=3", 82: "--on-remove=reset"} {
		r.loxicmd("create lb %s --tcp=%d:7 --endpoints=%s %s", vip4, port, endpoints4(), flags)
		conns := r.open(join(vip4, port), all)
		here, rest := r.at("31.31.31.1", conns)
		if len(here) != all/3 {
			t.Fatalf("%d of %d connections are at the endpoint", len(here), all)
		}
		at[flags], others = here, append(others, rest...)
	}
	stop := busy(t, others)
	start := time.Now()
	for _, port := range []int{80, 81, 82} {
		r.loxicmd("create lb %s --tcp=%d:7 --endpoints=31.31.31.1:1 --detachEP", vip4, port)
	}
	if took := allReset(t, at["--on-remove=reset"], patience); took > 3*time.Second {
		t.Errorf("reset: told after %v", took)
	}
	r.Kill()
	r.restart()
	for _, c := range at["--on-remove=drain --drain-time=3"] {
		if time.Since(start) < 2*time.Second {
			if err := exchange(c, "still here"); err != nil {
				t.Error(err)
			}
		}
	}
	allReset(t, at["--on-remove=drain --drain-time=3"], patience)
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("drain: told after %v", took)
	}
	ended.want(t, 2*all/3)
	for _, c := range at["--on-remove=keep"] {
		if err := exchange(c, "still here"); err != nil {
			t.Error(err)
		}
	}
	stop()
}

// P38 what becomes of the connections of an endpoint that is down is as the service says: they go on, or both ends are told
func TestOnFail(t *testing.T) {
	t.Parallel()
	const all = 30
	r := newRig(t, options{})
	ended := r.serveEnds()
	r.loxicmd("create lb %s --tcp=80:7 --endpoints=%s --monitor", vip4, endpoints4())
	r.loxicmd("create lb %s --tcp=81:7 --endpoints=%s --monitor --on-fail=reset", vip4, endpoints4())
	kept := r.open(join(vip4, 80), all)
	gone, others := r.at("32.32.32.1", r.open(join(vip4, 81), all))
	if len(gone) != all/3 {
		t.Fatalf("%d of %d connections are at the endpoint", len(gone), all)
	}
	stop := busy(t, append(kept, others...))
	r.hostState("32.32.32.1", "red")
	allReset(t, gone, patience)
	ended.want(t, len(gone))
	r.hostState("32.32.32.1", "green")
	r.eventuallyShows("get ep", "32.32.32.1_tcp_7", " ok ")
	labtest.Eventually(t, patience, func(context.Context) error {
		if here, _ := r.at("32.32.32.1", r.open(join(vip4, 81), 3)); len(here) == 0 {
			return fmt.Errorf("it takes no connections again")
		}
		return nil
	})
	stop()
}

// P39 UDP flows of an endpoint that is down move to another one with their next packet
func TestFlowsOfFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveUDPEcho()
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s --monitor --probetype=ping", vip4, endpoints4())
	flows := make([]net.Conn, 6)
	for i := range flows {
		flows[i] = dialUDP(t, r, join(vip4, 53))
		if _, err := datagram(flows[i], "hello"); err != nil {
			t.Fatal(err)
		}
	}
	failed := r.Endpoints[0].Name
	r.hostState("31.31.31.1", "red")
	labtest.Eventually(t, patience, func(context.Context) error {
		for i, c := range flows {
			if got, err := datagram(c, "hello"); err != nil || strings.HasPrefix(got, failed) {
				return fmt.Errorf("flow %d: %q, %w", i, got, err)
			}
		}
		return nil
	})
}
