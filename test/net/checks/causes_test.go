package checks_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestCauses checks that doctor reports why clients do not reach an endpoint, or not with large
// packets: a stopped server, a firewall that drops packets, a wrong gateway on the endpoint, a link
// that drops large packets, and replies that bypass the balancer. All commands that list problems
// show the last one, until it is repaired.
//
// P69 doctor reports why clients do not reach an endpoint, as far as the balancer can detect it
func TestCauses(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	second, third := r.Endpoints[1], r.Endpoints[2]
	// 99.99.99.1 is an address of ep1. ep1 sends replies from this address to a gateway that does
	// not exist.
	rig.MustRun(t, r.LB, "ip", "route", "add", "99.99.99.0/24", "via", "31.31.31.1")
	rig.MustRun(t, r.Endpoints[0], "ip", "addr", "add", "99.99.99.1/32", "dev", "lo")
	rig.MustRun(t, r.Endpoints[0], "ip", "route", "add", "default", "via", "31.31.31.99", "table", "7")
	rig.MustRun(t, r.Endpoints[0], "ip", "rule", "add", "from", "99.99.99.1", "lookup", "7")
	for port, endpoint := range map[string]string{"81:5999": "31.31.31.1:1", "82:5003": "17.17.17.1:1", "83:5001": "99.99.99.1:1"} {
		r.Loxicmd("create lb %s --tcp=%s --monitor --endpoints=%s", rig.VIP4, port, endpoint)
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=32.32.32.1:1,17.17.17.1:1", rig.VIP4)
	rig.MustRun(t, third, "nft", "table ip wall { chain in { type filter hook input priority 0; tcp dport 5003 drop; }; }")
	rig.MustRun(t, third, "nft", "table ip narrow { chain in { type filter hook input priority 0; ip length > 1280 drop; }; }")
	awaitText := func(line string, words ...string) {
		t.Helper()
		labtest.Eventually(t, 30*time.Second, func(context.Context) error {
			out, _ := r.Command(strings.Fields(line)...)
			for _, w := range words {
				if !strings.Contains(out, w) {
					return fmt.Errorf("%s does not show %q:\n%s", line, w, out)
				}
			}
			return nil
		})
	}
	awaitText("doctor",
		"endpoint 31.31.31.1:5999 is down: tcp 31.31.31.1:5999: connection refused", "nothing listens on that port",
		"endpoint 17.17.17.1:5003 is down: tcp 17.17.17.1:5003: no answer", "it answers ping, so its machine and the routes are up: a firewall drops that port, or its server hangs",
		"endpoint 99.99.99.1:5001 is down: tcp 99.99.99.1:5001: no answer",
		"it does not answer ping either: its machine is off, its route back to this machine is wrong (check its gateway)",
		"endpoint 17.17.17.1 answers pings of 1280 bytes, but not larger ones of up to 1500", "--mss=1220")
	r.Loxicmd("create lb %s --tcp=84:5998 --endpoints=31.31.31.1:1", rig.VIP4)
	awaitText("doctor", "endpoint 31.31.31.1:5998 does not accept connections of this machine: connection refused")
	rig.MustRun(t, second, "ip", "route", "replace", "default", "via", "32.32.32.99")
	r.Loxicmd("create lb %s --tcp=85:5001 --endpoints=32.32.32.1:1", rig.VIP4)
	alone := dialRepeatedly(r, "20.20.20.1:85")
	awaitText("doctor", "endpoint 32.32.32.1:5001 answers this machine, but none of")
	alone()
	stop := dialRepeatedly(r, "20.20.20.1:80")
	words := "endpoint 32.32.32.1:5001 answers this machine but no client: its answers to clients bypass this machine"
	for _, line := range []string{"doctor", "get status --failed -o json", "describe lb 20.20.20.1:80/tcp", "get events"} {
		awaitText(line, words)
	}
	awaitText("explain --client 100.100.100.1 --endpoint 32.32.32.1", "so the endpoint's answers to 100.100.100.1 bypass this machine")
	rig.MustRun(t, second, "ip", "route", "replace", "default", "via", "32.32.32.254")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		if out, _ := r.Command("get", "status", "--failed"); strings.Contains(out, words) {
			return fmt.Errorf("the repaired problem is still listed: %s", out)
		}
		return nil
	})
	awaitText("explain --client 100.100.100.1 --endpoint 32.32.32.1", "none failed", "forwarded: it opens a connection, to 32.32.32.1:5001\n")
	stop()
}

// dialRepeatedly opens connections at intervals until stop is called, and ignores errors.
func dialRepeatedly(r *rig.Rig, address string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var dialling sync.WaitGroup
	for range 2 {
		dialling.Go(func() {
			for ctx.Err() == nil {
				short, done := context.WithTimeout(ctx, 500*time.Millisecond)
				if c, err := r.Client.DialContext(short, "tcp", address); err == nil {
					_ = c.Close()
				}
				<-time.After(100 * time.Millisecond)
				done()
			}
		})
	}
	return func() {
		cancel()
		dialling.Wait()
	}
}
