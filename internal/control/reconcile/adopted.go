package reconcile

import (
	"context"
	"slices"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/health"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

const (
	// firstProbes is how long a start waits, all in all, until endpoints have been probed: that of one that is silent has ended by then.
	firstProbes = lb.DefaultProbeTimeout + time.Second
	probePoll   = 5 * time.Millisecond
)

// adopted are the services that an earlier process left in the data path. They avoid the endpoints that were down then, and go on doing so
// until these have been probed anew: a start gives nobody to a dead endpoint.
type adopted struct {
	rows  map[bpf.TcServiceKey]bool
	until time.Time // no longer is anything waited for; zero: nothing was yet
}

func newAdopted(rows []bpf.TcServiceKey) adopted {
	a := adopted{rows: make(map[bpf.TcServiceKey]bool, len(rows))}
	for _, row := range rows {
		a.rows[row] = true
	}
	return a
}

// await returns when something is known of the endpoints of these services, as far as they are adopted, or when it has been waited for
// long enough.
func (a *adopted) await(ctx context.Context, p *probes, items []*item) {
	if len(a.rows) == 0 {
		return
	}
	if a.until.IsZero() {
		a.until = time.Now().Add(firstProbes)
	}
	for _, i := range items {
		row := compile.Key(i.Key)
		for a.rows[row] && !p.known(&i.resolved) {
			if !time.Now().Before(a.until) {
				a.rows = nil
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(probePoll):
			}
		}
		delete(a.rows, row) // from now on it is ours
	}
}

// known tells whether there is a state of each endpoint that a service heeds.
func (p *probes) known(s *lb.Service) bool {
	return !s.Monitored() || !slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
		status, ok := p.prober.Status(p.keyOf(s, e))
		return ok && status.State == health.Unknown
	})
}
