package main

import (
	"context"
	"errors"

	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/verify"
	"loxilb/internal/lb"
)

// verifier compares, from the top down: objects with what the parts of the daemon have of them, and
// these with the kernel.
func (p *daemon) verifier(statuses *status.Table) *verify.Verifier {
	return verify.New(
		func(context.Context, verify.Options) []lb.Compared { return p.starting() },
		func(ctx context.Context, o verify.Options) []lb.Compared {
			return []lb.Compared{p.services.Audit(ctx, p.datapath, o.Repair)}
		},
		func(context.Context, verify.Options) []lb.Compared {
			return []lb.Compared{reconcile.AuditStatuses(statuses)}
		},
		func(_ context.Context, o verify.Options) []lb.Compared { return p.datapath.Audit(o.Repair) },
		func(ctx context.Context, o verify.Options) []lb.Compared {
			return []lb.Compared{p.datapath.AuditConnections(ctx, o.Sample, o.Whole, o.Repair)}
		},
	)
}

// starting returns what cannot be told as long as the data path is still being filled.
func (p *daemon) starting() []lb.Compared {
	ready, why := p.ready()
	if ready {
		return nil
	}
	return []lb.Compared{{Table: "start", Err: errors.New(why)}}
}
