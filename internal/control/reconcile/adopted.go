package reconcile

import (
	"context"
	"slices"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/health"
	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

const (
	// firstProbes bounds how long a start waits for first probes: probes of a silent endpoint
	// have timed out by then.
	firstProbes = lb.DefaultProbeTimeout + time.Second
	probePoll   = 5 * time.Millisecond
)

// adopted are the services in the data path from an earlier process. They are not written until
// their endpoints have been probed again, so a start sends no client to an endpoint that is still
// down.
type adopted struct {
	rows  map[bpf.TcServiceKey]bool
	until time.Time // end of the wait; zero: not begun
}

func newAdopted(rows []bpf.TcServiceKey) adopted {
	a := adopted{rows: make(map[bpf.TcServiceKey]bool, len(rows))}
	for _, row := range rows {
		a.rows[row] = true
	}
	return a
}

// await returns when the health of the adopted services' endpoints is known, or after firstProbes.
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
			if !monotime.Sleep(ctx, probePoll) {
				return
			}
		}
		delete(a.rows, row) // no longer adopted
	}
}

// known reports whether every endpoint whose health a service considers has a state.
func (p *probes) known(s *lb.Service) bool {
	return !s.Monitored() || !slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
		status, ok := p.prober.Status(p.keyOf(s, e))
		return ok && status.State == health.Unknown
	})
}
