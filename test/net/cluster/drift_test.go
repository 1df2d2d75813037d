package cluster_test

import (
	"fmt"
	"strings"

	"loxilb/test/await"
)

// checkDifference creates a service at one node only, and checks that another node reports it as
// missing until it is deleted.
func (e *experiment) checkDifference() {
	e.t.Helper()
	a, b := e.fleet.nodes[0], e.fleet.nodes[1]
	const name = "20.20.22.1:80/tcp"
	a.loxicmd("create lb 20.20.22.1 --mode=dsr --tcp=80:80 --probetype=none --endpoints=" + endpointList(false))
	awaitMissing := func(want bool) {
		e.t.Helper()
		await.NoError(e.t, patience, func() error {
			for _, command := range []string{"get cluster", "doctor"} {
				out, _ := b.Command(strings.Fields(command)...) // doctor exits with 1 if it reports a problem
				if strings.Contains(out, name+" is missing here") != want {
					return fmt.Errorf("%s reports that %s is missing: %v, want %v: %s", command, name, !want, want, out)
				}
			}
			return nil
		})
	}
	awaitMissing(true)
	if out := b.loxicmd("get node -o wide"); !strings.Contains(out, "a service differs") {
		e.t.Errorf("get node reports no difference:\n%s", out)
	}
	a.loxicmd("delete lb 20.20.22.1 --tcp=80")
	awaitMissing(false)
}
