package main

import (
	"context"
	"log/slog"

	"loxilb/internal/compile"
	"loxilb/internal/datapath"
	"loxilb/internal/lb"
	"loxilb/internal/reconcile"
	"loxilb/internal/status"
)

// statuses waits for a revision as a whole: the reconciler has no status for each object yet.
type statuses struct {
	*status.Table
	services *reconcile.Reconciler
}

// Get is the same for all of them.
func (s statuses) Get(id status.ID) (status.Status, bool) {
	version, err := s.services.Applied()
	return status.Status{ID: id, Desired: version, Applied: version, Err: err}, true
}

// Wait blocks until all up to the version is applied.
func (s statuses) Wait(ctx context.Context, version uint64, _ []status.ID) error {
	return s.services.Wait(ctx, version)
}

// view is the data path as the API and the metrics read it.
type view struct {
	*datapath.Datapath
	*reconcile.Reconciler
	log *slog.Logger
}

// ServiceStats finds the service by the user's key.
func (v view) ServiceStats(key lb.Key) (lb.ServiceStats, bool) {
	return v.Datapath.ServiceStats(compile.Key(key))
}

// XDP is without a count that cannot be read.
func (v view) XDP() (interfaces []string, mode string, forwarded uint64) {
	interfaces, how := v.XDPInterfaces()
	forwarded, err := v.XDPForwarded()
	if err != nil {
		v.log.Error("what XDP has forwarded cannot be read", "err", err)
	}
	return interfaces, string(how), forwarded
}

// Drops are without those that cannot be read.
func (v view) Drops() map[string]uint64 {
	drops, err := v.Datapath.Drops()
	if err != nil {
		v.log.Error("drops cannot be read", "err", err)
	}
	return drops
}
