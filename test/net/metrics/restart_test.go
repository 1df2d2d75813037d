package metrics_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// daemonSeries are prefixes of the series that count the daemon's own work. They begin at 0 with
// each start.
var daemonSeries = []string{"go_", "process_", "loxilb_api_", "loxilb_idle_", "loxilb_endpoint_state_changes_total", "loxilb_program_", "loxilb_sweep_"}

// counters returns the series that never decrease, including buckets of histograms.
func counters(t *testing.T, r *rig.Rig) map[string]float64 {
	t.Helper()
	page, err := r.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	out, kinds := map[string]float64{}, map[string]string{}
lines:
	for line := range strings.Lines(page) {
		if words := strings.Fields(line); words[0] == "#" {
			kinds[words[2]] = words[3]
			continue
		}
		for _, prefix := range daemonSeries {
			if strings.HasPrefix(line, prefix) {
				continue lines
			}
		}
		at := strings.LastIndexByte(line, ' ')
		name, _, _ := strings.Cut(line[:at], "{")
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if kinds[name] != "counter" && kinds[base] != "histogram" {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		out[line[:at]] = v
	}
	return out
}

// P61 Counters of packets, bytes, connections and handshakes are exact and never decrease: not when
// the daemon is killed and started under load, not for a service when an endpoint leaves it, and
// not for the machine when a service is deleted. A service, or an endpoint of one, that is created
// again counts from 0
func TestCountersOverRestart(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	rig.ServeEcho(r)
	const create = "create lb 20.20.20.1 --tcp=7:7 --endpoints=%s"
	r.Loxicmd(create, rig.Endpoints4())
	const connections = 6
	traffic := rig.StartTraffic(r, "20.20.20.1:7", connections)
	traffic.AwaitLines(t, connections)
	before := counters(t, r)
	grown := func(of string) {
		t.Helper()
		traffic.AwaitLines(t, connections)
		after := counters(t, r)
		for series, was := range before {
			if now, there := after[series]; now < was && (there || !strings.Contains(series, of)) {
				t.Errorf("%s has decreased from %v to %v (exists: %v)", series, was, now, there)
			}
		}
		before = after
	}
	for range 2 {
		r.Kill()
		traffic.AwaitLines(t, connections) // while no daemon runs
		r.Restart()
		grown("nothing else")
	}
	const service = `{service="20.20.20.1:7/tcp"}`
	fewer, last := rig.Endpoints4()[:strings.LastIndexByte(rig.Endpoints4(), ',')], netnstest.StandardNetworks()[3].V4.Addr()
	r.Loxicmd(create, fewer)
	grown(fmt.Sprintf(`endpoint="%s:7"`, last)) // except for series of the removed endpoint
	if err := traffic.Finish(); err != nil {
		t.Fatal(err)
	}
	all := counters(t, r)
	for series, want := range map[string]float64{
		"loxilb_connections_created_total": connections, "loxilb_service_connections_total" + service: connections,
		`loxilb_handshakes_total{event="answered"}`: connections, "loxilb_handshake_seconds_count": connections,
	} {
		if all[series] != want {
			t.Errorf("%s is %v, want %v", series, all[series], want)
		}
	}
	for _, of := range []string{"bytes", "packets"} {
		for _, dir := range []string{"in", "out"} {
			machine, one := "loxilb_"+of+`_total{dir="`+dir+`"}`, "loxilb_service_"+of+`_total{service="20.20.20.1:7/tcp",dir="`+dir+`"}`
			if all[machine] != all[one] || all[one] < float64(traffic.Count()) {
				t.Errorf("%s is %v, and %s %v, of %d lines", machine, all[machine], one, all[one], traffic.Count())
			}
		}
	}
	before = all
	r.Loxicmd("delete lb 20.20.20.1 --tcp=7")
	r.Loxicmd(create, fewer)
	after := counters(t, r)
	for series, was := range before {
		if now := after[series]; now < was && !strings.Contains(series, "service=") {
			t.Errorf("after the service was created again, %s has decreased from %v to %v", series, was, now)
		}
	}
	if n := after["loxilb_service_connections_total"+service]; n != 0 {
		t.Errorf("a service that was created again has %v connections", n)
	}
}
