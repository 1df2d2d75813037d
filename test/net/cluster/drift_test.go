package cluster_test

import (
	"fmt"
	"strings"

	"loxilb/test/await"
)

// drift creates a service at one node, which the others then miss, and show until it is deleted.
func (p *proof) drift() {
	p.t.Helper()
	a, b := p.f.nodes[0], p.f.nodes[1]
	const name = "20.20.22.1:80/tcp"
	a.loxicmd("create lb 20.20.22.1 --mode=dsr --tcp=80:80 --probetype=none --endpoints=" + endpointList(false))
	shows := func(want bool) {
		p.t.Helper()
		await.NoError(p.t, patience, func() error {
			for _, command := range []string{"get cluster", "doctor"} {
				out, _ := b.Command(strings.Fields(command)...) // doctor fails if it finds something
				if strings.Contains(out, name+" is missing here") != want {
					return fmt.Errorf("%s shows %s: %v, want %v: %s", command, name, !want, want, out)
				}
			}
			return nil
		})
	}
	shows(true)
	if out := b.loxicmd("get node -o wide"); !strings.Contains(out, "a service differs") {
		p.t.Errorf("get node names no difference:\n%s", out)
	}
	a.loxicmd("delete lb 20.20.22.1 --tcp=80")
	shows(false)
}
