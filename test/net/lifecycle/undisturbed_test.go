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
	// heldThrough is the number of connections through the changed service, heldBeside the number
	// of routed connections to each endpoint.
	heldThrough, heldBeside = 100, 33
	besidePort              = 8
	// longestGap is the longest time that a byte may take.
	longestGap = 50 * time.Millisecond
)

// TestUndisturbed checks that connections in constant use are not affected by changes of their
// service: no reset, and no byte that takes longer than 50 ms. As the machine may be busy, the same
// number of connections past the balancer serves as a reference.
//
// P27 Open connections continue without a pause when endpoints are added, or weights, algorithm,
// mode, timeouts, limits or lists of sources of their service change
func TestUndisturbed(t *testing.T) { // not parallel: other tests would disturb the timing
	changes := 60
	if rig.IsLong() {
		changes = 500
	}
	random := rig.Seeded(t)
	r := rig.New(t, rig.Options{Options: netnstest.Options{Forwarding: true}})
	rig.ServeEcho(r)
	beside, through := rig.NewClients(r), rig.NewClients(r)
	for i, h := range r.Endpoints {
		if err := h.ServeTCP(fmt.Sprintf(":%d", besidePort), netnstest.Echo); err != nil {
			t.Fatal(err)
		}
		beside.Hold(rig.Join(netnstest.StandardNetworks()[1+i].V4.Addr().String(), besidePort), heldBeside)
	}
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	through.Hold(rig.Join(rig.VIP4, 7), heldThrough)
	through.AwaitAnswers()
	for n := range changes {
		line := anyService(random)
		if out, err := r.Command(strings.Fields(line)...); err != nil {
			t.Fatalf("change %d: %s: %v: %s", n, line, err, out)
		}
		if err := through.Failure(); err != nil {
			t.Fatalf("after change %d, %s: %v", n, line, err)
		}
	}
	through.AwaitAnswers()
	if err := through.Finish(); err != nil {
		t.Error(err)
	}
	if err := beside.Finish(); err != nil {
		t.Error(err)
	}
	r.WantNoDrops()
	gaps := through.Gaps(longestGap, beside)
	for _, g := range gaps {
		t.Errorf("a byte took %v: a packet was lost, as there was no gap without the balancer", g.Length())
	}
	t.Logf("%d changes, %d bytes through the service, the slowest took %v, beside %v", changes, through.Answers(), through.Slowest, beside.Slowest)
}

// anyService returns a command that changes the service at random. Its three endpoints stay.
func anyService(random *rand.Rand) string {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	weight := func() int { return random.IntN(5) }
	line := fmt.Sprintf("create lb %s --tcp=7:7 --endpoints=%s%s", rig.VIP4, rig.Endpoints4(weight(), weight(), weight()), one("", ",31.31.31.77:3", ",32.32.32.77:1"))
	line += one("", " --mode=onearm", " --mode=fullnat", " --mode=dsr", " --mode=onearm --snat=20.20.20.77", " --mode=fullnat --snat=20.20.20.78,20.20.20.79")
	line += one("", " --select=hash", " --select=priority", " --select=persist", " --select=persist --persist-timeout=7", " --select=lc", " --select=random")
	line += one("", " --inatimeout=5", " --inatimeout=600")
	line += one("", " --sources=100.100.100.0/24", " --sources=10.0.0.0/8,2.0.0.0/24", " --sources=0.0.0.0/0")
	line += one("", " --deny=100.100.100.1", " --deny=3.0.0.0/8")
	line += one("", " --max-connections=1", " --max-rate=1", " --client-connections=2 --client-prefix=24", " --client-rate=1")
	line += one("", " --refuse=drop", " --refuse=pass")
	line += one("", " --syn-protect=always", " --syn-protect=off")
	line += one("", " --mss=1000", " --name=other", " --secips=20.20.20.2", " --monitor --probe-interval=100ms --all-down=panic")
	return line
}
