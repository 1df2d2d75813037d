package explain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/netnstest/labtest"
	"loxilb/test/net/rig"
)

// TestBrokenNetworks: explain names what is broken: an endpoint that is stopped, one behind a firewall, a gateway that is not there, an MTU that is too small,
// and answers that take another way; and where nothing is, it says where the packet goes, which it then does.
//
// P66 of a network that is broken, explain names the cause, as far as it shows at the balancer
func TestBrokenNetworks(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	firewall := "table ip wall { chain in { type filter hook input priority 0; tcp dport 5003 drop; }; }"
	rig.MustRun(t, r.Endpoints[2], "nft", firewall)
	rig.MustRun(t, r.LB, "ip", "route", "add", "99.99.99.0/24", "via", "31.31.31.77")
	rig.MustRun(t, r.LB, "ip", "link", "set", "ep3", "mtu", "1280")
	rig.MustRun(t, r.Endpoints[1], "ip", "route", "replace", "default", "via", "32.32.32.99")
	for port, endpoint := range map[string]string{
		"80:5001": "31.31.31.1:1", "81:5999": "31.31.31.1:1", "82:5003": "17.17.17.1:1", "83:5001": "99.99.99.1:1 --probetype=none", "84:5001": "17.17.17.1:1", "85:5001": "32.32.32.1:1",
	} {
		r.Loxicmd("create lb %s --tcp=%s --monitor --endpoints=%s", rig.VIP4, port, endpoint)
	}
	for _, c := range []struct {
		what, question string
		shows          []string
	}{
		{"nothing", "--from 100.100.100.1 --to 20.20.20.1:80", []string{"leaves by ep1 to 31.31.31.1 (", "forwarded: it opens a connection, to 31.31.31.1:5001"}},
		{"no service", "--from 100.100.100.1 --to 20.20.20.1:79", []string{"none of 20.20.20.1:79/tcp; 20.20.20.1 has", "left to the kernel"}},
		{"a stopped endpoint", "--from 100.100.100.1 --to 20.20.20.1:81", []string{"it is down", "connection refused", "refused: the service has no endpoint"}},
		{"a firewall", "--from 100.100.100.1 --to 20.20.20.1:82", []string{"it is down", "no answer within", "refused: the service has no endpoint"}},
		{"a gateway that is not there", "--from 100.100.100.1 --to 20.20.20.1:83", []string{"31.31.31.77, which does not answer ARP", "does not get there"}},
		{"a small MTU", "--from 100.100.100.1 --to 20.20.20.1:84", []string{"MTU 1280", "packets over 1280 bytes do not fit there, and client takes 1500"}},
		{"... and a large packet", "--from 100.100.100.1 --to 20.20.20.1:84 --length 1400", []string{"too-big", "names the MTU 1280"}},
		{"in reverse", "--client 100.100.100.1 --endpoint 17.17.17.1", []string{"17.17.17.1:5003 takes no new connections: it is down", "100.100.100.1 reaches 17.17.17.1 by 1 of 2 services"}},
		{"... by a gateway that is not there", "--client 100.100.100.1 --endpoint 99.99.99.1", []string{"does not answer ARP", "does not reach 99.99.99.1: by none of 1 service"}},
		{"this machine itself", "--from 31.31.31.254 --to 20.20.20.1:80", []string{"an address of this machine", "when the socket connects"}},
	} {
		eventually(t, r, c.what, c.question, func() {}, c.shows...)
	}
	dial := func() {
		var dialling sync.WaitGroup
		for range 4 {
			dialling.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if c, err := r.Client.DialContext(ctx, "tcp", "20.20.20.1:85"); err == nil {
					_ = c.Close()
				}
			})
		}
		dialling.Wait()
	}
	eventually(t, r, "answers that take another way", "--from 100.100.100.1 --to 20.20.20.1:85", dial,
		"not answered at all", "the endpoint's answers to 100.100.100.1 do not come back through this machine",
		"where many are not answered")
	manyAtOnce(t, r)
}

// eventually asks until the answer has all words.
func eventually(t *testing.T, r *rig.Rig, what, question string, before func(), words ...string) {
	t.Helper()
	labtest.Eventually(t, 40*time.Second, func(context.Context) error {
		before()
		answer := r.Loxicmd("explain %s", question)
		for _, w := range words {
			if !strings.Contains(answer, w) {
				return fmt.Errorf("%s: explain %s does not say %q:\n%s", what, question, w, answer)
			}
		}
		return nil
	})
}

// manyAtOnce: of a hundred questions at once each is answered, or refused with 503, and the connection that is asked about goes where all of them said.
func manyAtOnce(t *testing.T, r *rig.Rig) {
	var asking sync.WaitGroup
	answered := make(chan string, 100)
	for range 100 {
		asking.Go(func() {
			out, err := r.Command("explain", "--from", "100.100.100.1:4000", "--to", "20.20.20.1:80", "-o", "json")
			if err != nil {
				if !strings.Contains(err.Error(), "too many questions wait") {
					t.Error(err)
				}
				return
			}
			var a v1.Explanation
			if err := json.Unmarshal([]byte(out), &a); err != nil {
				t.Error(err)
			}
			answered <- a.Endpoint
		})
	}
	asking.Wait()
	close(answered)
	n := 0
	for endpoint := range answered {
		if n++; endpoint != "31.31.31.1:5001" {
			t.Errorf("answer %d: %s", n, endpoint)
		}
	}
	if n == 0 {
		t.Error("none was answered")
	}
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")
}
