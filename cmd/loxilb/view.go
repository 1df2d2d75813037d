package main

import (
	"fmt"
	"log/slog"

	"loxilb/internal/compile"
	"loxilb/internal/datapath"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/netdev/session"
	"loxilb/internal/reconcile"
	"loxilb/internal/status"
)

// view is the data path as the API and the metrics read it.
type view struct {
	*datapath.Datapath
	*status.Table
	*reconcile.Health
	attached *reconcile.Attached
	log      *slog.Logger
}

// ServiceStats finds the service by the user's key.
func (v view) ServiceStats(key lb.Key) (lb.ServiceStats, bool) {
	return v.Datapath.ServiceStats(compile.Key(key))
}

// PolicerStats are without counts that cannot be read.
func (v view) PolicerStats(name string) lb.PolicerStats {
	n, err := v.Policed(name)
	if err != nil {
		v.log.Error("a policer's counters cannot be read", "policer", name, "error", err)
	}
	return lb.PolicerStats{Policed: n, Attached: v.attached.PolicerPlaces(name)}
}

// Sessions are those that firewall rules could cut.
func (v view) Sessions() ([]lb.Session, error) {
	list, err := session.List()
	out := make([]lb.Session, len(list))
	for i, s := range list {
		out[i] = lb.Session(s)
	}
	return out, err
}

// RuleHits finds the counter by the user's rule.
func (v view) RuleHits(r *lb.Rule) (lb.Traffic, bool) {
	return v.Datapath.RuleHits(compile.RuleIdentity(r))
}

// MirrorStats are without counts that cannot be read.
func (v view) MirrorStats(name string) lb.MirrorStats {
	n, err := v.Mirrored(name)
	if err != nil {
		v.log.Error("a mirror's counters cannot be read", "mirror", name, "error", err)
	}
	n.Attached = v.attached.MirrorPlaces(name)
	return n
}

// XDP is without a count that cannot be read.
func (v view) XDP() (interfaces []string, mode string, forwarded uint64) {
	interfaces, how := v.XDPInterfaces()
	forwarded, err := v.XDPForwarded()
	if err != nil {
		v.log.Error("what XDP has forwarded cannot be read", "error", err)
	}
	return interfaces, string(how), forwarded
}

// NextHopsFull is 0 if it cannot be read.
func (v view) NextHopsFull() uint64 {
	n, err := v.Datapath.NextHopsFull()
	if err != nil {
		v.log.Error("packets without a row for their next hop cannot be counted", "error", err)
	}
	return n
}

// Drops are without those that cannot be read.
func (v view) Drops() map[string]uint64 {
	drops, err := v.Datapath.Drops()
	if err != nil {
		v.log.Error("drops cannot be read", "error", err)
	}
	return drops
}

// Pressure is without what cannot be read.
func (v view) Pressure() lb.Pressure {
	p, err := v.Datapath.Pressure()
	if err != nil {
		v.log.Error("challenges cannot be read", "error", err)
	}
	return p
}

// unknown are the statuses of stored objects that this loxilb does not understand: they are kept, and not served.
func unknown(state *desired.State) (list []status.Status) {
	for u := range state.Snapshot().Unknown() {
		list = append(list, status.Status{
			ID: status.ID(u.ID), Desired: u.Version,
			Err: fmt.Errorf("it is kept and not served, since this loxilb does not understand it: %s", u.Reason),
		})
	}
	return list
}
