package reconcile

import (
	"context"
	"testing"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/kernel/datapath/bpf"
)

// alwaysDiffers is a data path that differs from every table.
type alwaysDiffers struct{}

func (alwaysDiffers) Compare(*bpf.ServiceTable) []string { return []string{"differs"} }

// TestAuditUnsettled checks that a service that differs is reported, unless one of its endpoints
// has just changed its state, so the loop may not have followed yet.
func TestAuditUnsettled(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=tcp monitor=true", "10.0.0.2:80/tcp endpoints=192.168.1.3:80")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range []struct {
		since                  time.Duration
		differences, unsettled int
	}{{10 * time.Second, 2, 0}, {healthDelay / 2, 1, 1}, {2 * healthDelay, 2, 0}} {
		at := time.Now().Add(-c.since)
		p := r.prober
		p.mu.Lock()
		for key, s := range p.states {
			s.State, s.ProbeState, s.Since, s.ProbeSince = health.Up, health.Up, at, at
			p.states[key] = s
		}
		probed := len(p.states)
		p.mu.Unlock()
		got := r.services.Audit(ctx, alwaysDiffers{}, false)
		if got.Err != nil || probed != 2 || len(got.Differences) != c.differences || got.Unsettled != c.unsettled {
			t.Errorf("%d endpoints changed %v ago: %+v; want %d differences, %d unsettled", probed, c.since, got, c.differences, c.unsettled)
		}
	}
}
