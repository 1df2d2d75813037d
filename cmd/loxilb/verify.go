package main

import (
	"context"
	"errors"

	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/verify"
	"loxilb/internal/lb/report"
)

// verifier compares, from the top down: objects with what the parts of the daemon have of them, and
// these with the kernel.
func (p *daemon) verifier(statuses *status.Table) *verify.Verifier {
	return verify.New(
		func(context.Context, verify.Options) []report.Compared { return p.starting() },
		func(ctx context.Context, o verify.Options) []report.Compared {
			return []report.Compared{p.services.Audit(ctx, p.datapath, o.Repair)}
		},
		func(context.Context, verify.Options) []report.Compared {
			return []report.Compared{reconcile.AuditStatuses(statuses)}
		},
		func(_ context.Context, o verify.Options) []report.Compared { return p.datapath.Audit(o.Repair) },
		func(ctx context.Context, o verify.Options) []report.Compared {
			return []report.Compared{p.datapath.AuditConnections(ctx, o.Sample, o.Whole, o.Repair)}
		},
	)
}

// starting returns what cannot be told as long as the data path is still being filled.
func (p *daemon) starting() []report.Compared {
	ready, why := p.ready()
	if ready {
		return nil
	}
	return []report.Compared{{Table: "start", Err: errors.New(why)}}
}
