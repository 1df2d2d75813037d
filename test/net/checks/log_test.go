package checks_test

import (
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
)

// warnings returns the lines of the daemon's log that have the level warning or error and contain a
// text.
func warnings(r *rig.Rig, words string) (list []string) {
	for line := range strings.Lines(r.Log()) {
		if (strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")) && strings.Contains(line, words) {
			list = append(list, line)
		}
	}
	return list
}

// TestWarningSummaries checks that a service that refuses clients every second has one log line
// immediately, and later a summary. Both name the service, and their sum is the number of dropped
// packets. The same holds for an endpoint whose route refuses packets.
//
// P76 A repeated warning about a service is logged once immediately, and then in summaries
func TestWarningSummaries(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	rig.MustRun(t, r.LB, "ip", "route", "add", "unreachable", "99.99.99.1")
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1 --name=web", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=99.99.99.1:1 --outlier=off", rig.VIP4)
	r.Loxicmd("drain endpoint 31.31.31.1")
	const seconds = 6
	pace := time.NewTicker(100 * time.Millisecond) // time between retries of clients
	defer pace.Stop()
	for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); <-pace.C {
		for port := 80; port < 82; port++ {
			soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if c, err := r.Client.DialContext(soon, "tcp", rig.Join(rig.VIP4, port)); err == nil {
				t.Errorf("port %d answers", port)
				_ = c.Close()
			}
			cancel()
		}
	}
	total := r.Metric("drops_total", "reason=no-endpoint")
	r.Stop() // writes the summaries
	all := warnings(r, "packets dropped")
	web, route := warnings(r, "reason=no-endpoint"), warnings(r, "reason=route-unreachable")
	if len(all) != 4 || len(web) != 2 || len(route) != 2 {
		t.Fatalf("%d lines, %d of a service without endpoints, %d of a route:\n%s", len(all), len(web), len(route), strings.Join(all, ""))
	}
	var counted float64
	for i, line := range web {
		if !strings.Contains(line, "service="+net.JoinHostPort(rig.VIP4, "80")+"/tcp") || !strings.Contains(line, "name=web") {
			t.Errorf("line %d does not name the service: %s", i, line)
		}
		counted += number(t, line, "packets")
	}
	if counted != total || number(t, web[1], "repeated") < seconds-2 {
		t.Errorf("the lines count %v packets of %v:\n%s", counted, total, strings.Join(web, ""))
	}
	for i, line := range route {
		if !strings.Contains(line, "endpoint=99.99.99.1") {
			t.Errorf("line %d does not name the endpoint: %s", i, line)
		}
	}
	if list := warnings(r, ""); len(list) > 8 {
		t.Errorf("%d warnings in total:\n%s", len(list), strings.Join(list, ""))
	}
}

// number returns a numeric attribute of a log line.
func number(t *testing.T, line, key string) float64 {
	t.Helper()
	m := regexp.MustCompile(` ` + key + `=(\d+)`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("no %s in %s", key, line)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
