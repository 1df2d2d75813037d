package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// example is a query to explain, and texts that the answer must contain.
type example struct {
	what, question string
	wants          []string
}

// TestBrokenNetworks checks that explain reports the fault: a stopped endpoint, a firewall before
// an endpoint, a missing gateway, an MTU that is too small, and replies that take another path.
// Without a fault, it prints the endpoint that the packet then reaches. The same holds over IPv6.
//
// P66 explain reports the fault of a network, as far as the balancer can detect it
func TestBrokenNetworks(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	firewall := "table inet wall { chain in { type filter hook input priority 0; tcp dport 5003 drop; }; }"
	rig.MustRun(t, r.Endpoints[2], "nft", firewall)
	rig.MustRun(t, r.LB, "ip", "route", "add", "99.99.99.0/24", "via", "31.31.31.77")
	rig.MustRun(t, r.LB, "ip", "route", "add", "2001:db8:99::/64", "via", "2001:db8:31::77")
	rig.MustRun(t, r.LB, "ip", "link", "set", "ep3", "mtu", "1280")
	rig.MustRun(t, r.Endpoints[1], "ip", "route", "replace", "default", "via", "32.32.32.99")
	for port, endpoint := range map[string]string{
		"80:5001": "31.31.31.1:1", "81:5999": "31.31.31.1:1", "82:5003": "17.17.17.1:1", "83:5001": "99.99.99.1:1 --probetype=none", "84:5001": "17.17.17.1:1", "85:5001": "32.32.32.1:1",
	} {
		r.Loxicmd("create lb %s --tcp=%s --monitor --probe-interval=500ms --endpoints=%s", rig.VIP4, port, endpoint)
	}
	for port, endpoint := range map[string]string{
		"80:5001": "[2001:db8:31::1]:1", "82:5003": "[2001:db8:17::1]:1", "83:5001": "[2001:db8:99::1]:1 --probetype=none",
	} {
		r.Loxicmd("create lb %s --tcp=%s --monitor --probe-interval=500ms --endpoints=%s", rig.VIP6, port, endpoint)
	}
	r.Loxicmd("create lb %s --udp=443:5001 --select=quic --endpoints=31.31.31.1:1#0a,32.32.32.1:1#0b", rig.VIP4)
	const from4, from6 = "from=100.100.100.1&to=20.20.20.1:", "from=2001:db8:100::1&to=[2001:db8:20::1]:"
	for _, c := range []example{
		{"nothing", from4 + "80", []string{"leaves through ep1 to 31.31.31.1 (", "forwarded: it opens a connection, to 31.31.31.1:5001"}},
		{"no service", from4 + "79", []string{"no service for 20.20.20.1:79/tcp; 20.20.20.1 has", "left to the kernel"}},
		{"a stopped endpoint", from4 + "81", []string{"it is down", "connection refused", "refused: the service has no endpoint"}},
		{"a firewall", from4 + "82", []string{"it is down", "no answer within", "refused: the service has no endpoint"}},
		{"a gateway that is not there", from4 + "83", []string{"31.31.31.77, which does not answer ARP", "does not arrive"}},
		{"a small MTU", from4 + "84", []string{"MTU 1280", "packets over 1280 bytes do not fit there, but client receives up to 1500"}},
		{"... and a large packet", from4 + "84&length=1400", []string{"too-big", "an ICMP error with MTU 1280"}},
		{"in reverse", "client=100.100.100.1&endpoint=17.17.17.1", []string{"17.17.17.1:5003 is not available: it is down", "100.100.100.1 reaches 17.17.17.1 by 1 of 2 services"}},
		{"... by one protocol", "client=100.100.100.1&endpoint=32.32.32.1&proto=udp", []string{"20.20.20.1:443/udp", "by 1 of 1 service"}},
		{"... by a gateway that is not there", "client=100.100.100.1&endpoint=99.99.99.1", []string{"does not answer ARP", "does not reach 99.99.99.1: by none of 1 service"}},
		{"a QUIC connection ID", from4 + "443&connectionID=000b01020304", []string{
			"32.32.32.1:5001: the server ID in the connection ID", "it opens a connection, to 32.32.32.1:5001",
		}},
		{"... of no server", from4 + "443&connectionID=000c01020304&length=1400", []string{"names no endpoint that serves", "it opens a connection, to "}},
		{"this machine itself", "from=31.31.31.254&to=20.20.20.1:80", []string{"an address of this machine", "when the socket connects"}},
		{"IPv6, nothing", from6 + "80", []string{"leaves through ep1 to 2001:db8:31::1 (", "forwarded: it opens a connection, to [2001:db8:31::1]:5001"}},
		{"IPv6, no service", from6 + "79", []string{"no service for [2001:db8:20::1]:79/tcp; 2001:db8:20::1 has", "left to the kernel"}},
		{"IPv6, a firewall", from6 + "82", []string{"it is down", "no answer within", "refused: the service has no endpoint"}},
		{"IPv6, a gateway that is not there", from6 + "83", []string{"2001:db8:31::77, which does not answer neighbour discovery", "does not arrive"}},
		{"IPv6, in reverse", "client=2001:db8:100::1&endpoint=2001:db8:31::1", []string{"2001:db8:100::1 reaches 2001:db8:31::1 by 1 of 1 service"}},
	} {
		awaitExplanation(t, r, c, func() {})
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
	awaitExplanation(t, r, example{"replies that bypass the balancer", from4 + "85", []string{
		"not answered at all", "the endpoint's answers to 100.100.100.1 bypass this machine", "where many are not answered",
	}}, dial)
	askSimultaneously(t, r)
	r.WantAnswers(rig.Join(rig.VIP6, 80), "ep1")
}

// ask sends a query to the REST API: starting loxicmd would take longer than the answer.
func ask(client *http.Client, question string) (a v1.Explanation, err error) {
	resp, err := client.Get("http://127.0.0.1:11111/netlox/v1/explain?" + question)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return a, errors.Join(err, json.Unmarshal(body, &a))
}

// allText returns all texts of an answer.
func allText(a *v1.Explanation) string {
	var b strings.Builder
	for _, s := range a.Steps {
		fmt.Fprintf(&b, "%s %s %s\n", s.State, s.Stage, s.Text)
	}
	for i := range a.Paths {
		b.WriteString(allText(&a.Paths[i]))
	}
	return b.String() + a.Reason + "\n" + a.Summary + "\n"
}

// awaitExplanation repeats a query until the answer contains all texts.
func awaitExplanation(t *testing.T, r *rig.Rig, c example, before func()) {
	t.Helper()
	client := r.LB.HTTPClient(rig.Patience)
	labtest.Eventually(t, 40*time.Second, func(context.Context) error {
		before()
		a, err := ask(client, c.question)
		if err != nil {
			return err
		}
		text := allText(&a)
		for _, w := range c.wants {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%s: explain %s does not print %q:\n%s", c.what, c.question, w, text)
			}
		}
		return nil
	})
}

// askSimultaneously checks that each of a hundred simultaneous queries is answered, or refused with
// code 503. All answers must have the endpoint that the command prints and that a connection then
// reaches.
func askSimultaneously(t *testing.T, r *rig.Rig) {
	var asking sync.WaitGroup
	answered := make(chan string, 100)
	client := r.LB.HTTPClient(rig.Patience)
	for range 100 {
		asking.Go(func() {
			a, err := ask(client, "from=100.100.100.1:4000&to=20.20.20.1:80")
			if err == nil {
				answered <- a.Endpoint
			} else if !strings.Contains(err.Error(), "too many explain requests") {
				t.Errorf(`got %v, want "too many explain requests" in the error`, err)
			}
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
		t.Error("no request was answered")
	}
	if out := r.Loxicmd("explain --from 100.100.100.1:4000 --to 20.20.20.1:80"); !strings.Contains(out, "to 31.31.31.1:5001") {
		t.Errorf(`got %v, want "to 31.31.31.1:5001" in out`, out)
	}
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")
}

// TestOtherObjects checks that explain reports the outer header of a tunnel, policers, mirrors and
// records, and interfaces that loxilb does not handle.
func TestOtherObjects(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--blacklist=^ep2$"}})
	r.ServeNames()
	for _, line := range []string{
		"create lb 20.20.20.1 --tcp=80:5001 --name=web --endpoints=31.31.31.1:1",
		"create lb 20.20.20.1 --tcp=81:81 --mode=dsr --tunnel=ipip --endpoints=31.31.31.1:1",
		"create lb 20.20.20.1 --tcp=82:82 --mode=dsr --tunnel=gue --endpoints=17.17.17.1:1",
		"create lb 2001:db8:20::1 --tcp=81:81 --mode=dsr --tunnel=ipip --endpoints=[2001:db8:31::1]:1",
		"create lb 20.20.20.1 --tcp=83:5001 --name=slow --endpoints=31.31.31.1:1",
		"create policy of-web --rate=10:10 --target=web:service",
		"create policy of-clients --rate=10:10 --target=100.100.0.0/16:source",
		"create policy of-slow --rate=0:1pps --pol-type=1 --block-size=1:1 --target=slow:service",
		"create mirror of-client --mirrorInfo=type:span,port:ep3 --targetObject=attachment:port,mirrObjName:client",
		"create firewall --firewallRule=sourceIP:100.100.100.9/32 --drop --record",
	} {
		r.Loxicmd("%s", line)
	}
	for _, c := range []example{
		{"policers", "from=100.100.100.1&to=20.20.20.1:80", []string{"currently within the rate of of-clients (of client 100.100.0.0/16) and of-web (of service 20.20.20.1:80/tcp)"}},
		{"a mirror", "from=100.100.100.1&to=20.20.20.1:80", []string{"gets a copy: of-client (of interface client)"}},
		{"a record", "from=100.100.100.9&to=20.20.20.1:80", []string{"sourceIP:100.100.100.9/32", "and a copy is recorded", "dropped silently"}},
		{"IP in IP", "from=100.100.100.1&to=20.20.20.1:81", []string{"in a tunnel: IP in IP, the outer header 198.1", " > 31.31.31.1; packets of up to 1480 bytes fit"}},
		{"IPv6 in IPv6", "from=2001:db8:100::1&to=[2001:db8:20::1]:81", []string{"in a tunnel: IP in IP, the outer header 100::", " > 2001:db8:31::1; packets of up to 1460 bytes fit"}},
		{"GUE", "from=100.100.100.1&to=20.20.20.1:82", []string{"in a tunnel: GUE, the outer header 17.17.17.254:", " > 17.17.17.1:6080; packets of up to 1472 bytes fit"}},
		{"an interface that is not attached", "from=32.32.32.1&to=20.20.20.1:80", []string{"left to the kernel: loxilb is not attached to ep2"}},
	} {
		awaitExplanation(t, r, c, func() {})
	}
	awaitExplanation(t, r, example{
		"over a rate", "from=100.100.100.1&to=20.20.20.1:83",
		[]string{"exceeds the rate of of-clients (of client 100.100.0.0/16), or of-slow (of service 20.20.20.1:83/tcp)", "policed"},
	}, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if c, err := r.Client.DialContext(ctx, "tcp", "20.20.20.1:83"); err == nil {
			_ = c.Close()
		}
	})
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")
	checkVLAN(t, r)
}

// checkVLAN checks that explain uses the VLAN's interface for packets of a VLAN, if the kernel
// supports VLANs.
func checkVLAN(t *testing.T, r *rig.Rig) {
	t.Helper()
	if out, err := r.LB.Run("ip", "link", "add", "link", "client", "name", "client.7", "type", "vlan", "id", "7"); err != nil {
		if !strings.Contains(out, "Unknown device type") {
			t.Fatalf(`got %v %v, want "Unknown device type" in out`, out, err)
		}
		t.Log("the kernel has no 8021q")
		return
	}
	rig.MustRun(t, r.LB, "ip", "address", "add", "107.0.0.254/24", "dev", "client.7")
	rig.MustRun(t, r.LB, "ip", "link", "set", "client.7", "up")
	awaitExplanation(t, r, example{"a VLAN", "from=107.0.0.1&to=20.20.20.1:80", []string{"received on client.7,", "to 31.31.31.1:5001"}}, func() {})
	for _, line := range []string{
		"link add link eth0 name eth0.7 type vlan id 7", "address add 107.0.0.1/24 dev eth0.7", "link set eth0.7 up", "route add 20.20.20.1 via 107.0.0.254 src 107.0.0.1",
	} {
		rig.MustRun(t, r.Client, append([]string{"ip"}, strings.Fields(line)...)...)
	}
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")
}
