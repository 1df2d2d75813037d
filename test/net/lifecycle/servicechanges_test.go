package lifecycle_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

const (
	// heldBalanced is the number of connections to the changed service. heldDirect is the number of
	// routed connections to each endpoint.
	heldBalanced, heldDirect = 100, 33
	directPort               = 8
	// longestGap limits the time until a byte is returned.
	longestGap = 50 * time.Millisecond
)

// TestServiceChangesKeepConnections checks that changes of a service do not affect its connections:
// no connection is reset, and no byte takes longer than 50 ms. The same number of routed
// connections shows when the machine itself causes delays.
//
// P27 Open connections continue without a pause when endpoints are added, or weights, algorithm,
// mode, timeouts, limits or lists of sources of their service change
func TestServiceChangesKeepConnections(t *testing.T) { // not parallel: other tests would disturb the timing
	changes := 60
	if rig.IsLong() {
		changes = 500
	}
	random := rig.Seeded(t)
	r := rig.New(t, rig.Options{Options: netnstest.Options{Forwarding: true}})
	rig.ServeEcho(r)
	direct, balanced := rig.NewClients(r), rig.NewClients(r)
	for i, h := range r.Endpoints {
		if err := h.ServeTCP(fmt.Sprintf(":%d", directPort), netnstest.Echo); err != nil {
			t.Fatal(err)
		}
		direct.Hold(rig.Join(netnstest.StandardNetworks()[1+i].V4.Addr().String(), directPort), heldDirect)
	}
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	balanced.Hold(rig.Join(rig.VIP4, 7), heldBalanced)
	balanced.AwaitAnswers()
	for n := range changes {
		line := randomService(random)
		if out, err := r.Command(strings.Fields(line)...); err != nil {
			t.Fatalf("change %d: %s: %v: %s", n, line, err, out)
		}
		if err := balanced.Failure(); err != nil {
			t.Fatalf("after change %d, %s: %v", n, line, err)
		}
	}
	balanced.AwaitAnswers()
	if err := balanced.Finish(); err != nil {
		t.Error(err)
	}
	if err := direct.Finish(); err != nil {
		t.Error(err)
	}
	r.WantNoDrops()
	gaps := balanced.Gaps(longestGap, direct)
	for _, g := range gaps {
		t.Errorf("a byte took %v: the balancer has lost a packet, since routed connections had no gap", g.Length())
	}
	t.Logf("%d changes, %d bytes through the service, the slowest took %v; the slowest routed one %v", changes, balanced.Answers(), balanced.Slowest, direct.Slowest)
}

// randomService returns a command that changes the service at random, but keeps its three
// endpoints.
func randomService(random *rand.Rand) string {
	oneOf := func(list ...string) string { return list[random.IntN(len(list))] }
	weight := func() int { return random.IntN(5) }
	line := fmt.Sprintf("create lb %s --tcp=7:7 --endpoints=%s%s", rig.VIP4, rig.Endpoints4(weight(), weight(), weight()), oneOf("", ",31.31.31.77:3", ",32.32.32.77:1"))
	line += oneOf("", " --mode=onearm", " --mode=fullnat", " --mode=dsr", " --mode=onearm --snat=20.20.20.77", " --mode=fullnat --snat=20.20.20.78,20.20.20.79")
	line += oneOf("", " --select=hash", " --select=priority", " --select=persist", " --select=persist --persist-timeout=7", " --select=lc", " --select=random")
	line += oneOf("", " --inatimeout=5", " --inatimeout=600")
	line += oneOf("", " --sources=100.100.100.0/24", " --sources=10.0.0.0/8,2.0.0.0/24", " --sources=0.0.0.0/0")
	line += oneOf("", " --deny=100.100.100.1", " --deny=3.0.0.0/8")
	line += oneOf("", " --max-connections=1", " --max-rate=1", " --client-connections=2 --client-prefix=24", " --client-rate=1")
	line += oneOf("", " --refuse=drop", " --refuse=pass")
	line += oneOf("", " --syn-protect=always", " --syn-protect=off")
	line += oneOf("", " --mss=1000", " --name=other", " --secips=20.20.20.2", " --monitor --probe-interval=100ms --all-down=panic")
	return line
}
