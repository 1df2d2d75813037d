package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/host/machine"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
	"loxilb/internal/telemetry/metrics"
)

// view is the data path as the API and the metrics read it. It logs read errors.
type view struct {
	*datapath.Datapath
	*status.Table
	*reconcile.Health
	attached *reconcile.Attached
	log      *slog.Logger
	sources  *netdev.Sources
}

// AllStats leaves out unreadable counts.
func (v view) AllStats(keys []lb.Key, yield func(index int, s *report.ServiceStats)) report.EndpointStats {
	all, err := v.Datapath.AllStats(compiledKeys(keys), yield)
	if err != nil {
		v.log.Error("counters cannot be read", "error", err)
	}
	return all
}

// EachServiceStats leaves out unreadable services.
func (v view) EachServiceStats(keys []lb.Key, yield func(index int, s *report.ServiceStats)) {
	if err := v.Datapath.EachServiceStats(compiledKeys(keys), yield); err != nil {
		v.log.Error("counters cannot be read", "error", err)
	}
}

// compiledKeys returns the data path's form of keys.
func compiledKeys(keys []lb.Key) []bpf.TcServiceKey {
	out := make([]bpf.TcServiceKey, len(keys))
	for i, key := range keys {
		out[i] = compile.Key(key)
	}
	return out
}

// SourcePorts leaves out unreadable pools.
func (v view) SourcePorts(least, most int) []report.SourcePorts {
	list, err := v.PortsInUse(least, most)
	if err != nil {
		v.log.Error("source ports cannot be counted", "error", err)
	}
	return list
}

// Sweeps returns statistics of the sweeps of the connection table.
func (v view) Sweeps() metrics.Sweeps {
	s := v.Swept()
	return metrics.Sweeps{Visited: s.Visited, Ended: s.Ended, Last: s.Last}
}

// Programs returns the programs at the tc hooks.
func (v view) Programs() []metrics.Program {
	uses := v.Datapath.Programs()
	list := make([]metrics.Program, len(uses))
	for i, u := range uses {
		list[i] = metrics.Program(u)
	}
	return list
}

// ServiceStats finds the service by the user's key.
func (v view) ServiceStats(key lb.Key) (report.ServiceStats, bool) {
	return v.Datapath.ServiceStats(compile.Key(key))
}

// Receiving finds the service by the user's key.
func (v view) Receiving(key lb.Key) ([]bool, bool) { return v.Datapath.Receiving(compile.Key(key)) }

// EachEndpointID finds the service by the user's key.
func (v view) EachEndpointID(key lb.Key, yield func(endpoint int, id uint32)) {
	v.Datapath.EachEndpointID(compile.Key(key), yield)
}

// PolicerStats leaves out counts that cannot be read.
func (v view) PolicerStats(name string) policy.PolicerStats {
	n, err := v.Policed(name)
	if err != nil {
		v.log.Error("a policer's counters cannot be read", "policer", name, "error", err)
	}
	return policy.PolicerStats{Policed: n, Attached: v.attached.PolicerPlaces(name)}
}

// AcceptedConnections lists the TCP connections that this machine has accepted and that a change at
// these addresses could disconnect, or all of them. Most VIPs are no addresses of this machine, so
// most changes need no search.
func (v view) AcceptedConnections(at ...netip.Addr) ([]policy.AcceptedConnection, error) {
	if own, err := machine.HasAddress(at); err != nil || len(at) > 0 && !own {
		return nil, err
	}
	list, err := machine.AcceptedConnections()
	if err != nil {
		return nil, err
	}
	hosts := make([]netip.Addr, len(list))
	for i := range list {
		hosts[i] = list[i].Remote.Addr()
	}
	routes, err := v.sources.Routes(context.Background(), hosts)
	if err != nil {
		return nil, fmt.Errorf("look up the paths of sessions: %w", err)
	}
	out := make([]policy.AcceptedConnection, len(list))
	for i, s := range list {
		r := routes[s.Remote.Addr()]
		out[i] = policy.AcceptedConnection{Remote: s.Remote, Local: s.Local, Interface: s.Interface, Out: r.Dev, Route: r.Destination, Metric: r.Metric}
	}
	return out, nil
}

// RuleHits finds the counter by the user's rule.
func (v view) RuleHits(r *policy.Rule) (report.Traffic, bool) {
	return v.Datapath.RuleHits(compile.RuleIdentity(r))
}

// MirrorStats leaves out counts that cannot be read.
func (v view) MirrorStats(name string) policy.MirrorStats {
	n, err := v.Mirrored(name)
	if err != nil {
		v.log.Error("a mirror's counters cannot be read", "mirror", name, "error", err)
	}
	n.Attached = v.attached.MirrorPlaces(name)
	return n
}

// XDP leaves out a count that cannot be read.
func (v view) XDP() (interfaces []string, mode string, forwarded uint64) {
	interfaces, how := v.XDPInterfaces()
	forwarded, err := v.XDPForwarded()
	if err != nil {
		v.log.Error("the counters of XDP cannot be read", "error", err)
	}
	return interfaces, string(how), forwarded
}

// NextHopsFull returns 0 if the counter cannot be read.
func (v view) NextHopsFull() uint64 {
	n, err := v.Datapath.NextHopsFull()
	if err != nil {
		v.log.Error("packets without a row for their next hop cannot be counted", "error", err)
	}
	return n
}

// GTPCounts returns nothing if the counters cannot be read.
func (v view) GTPCounts() map[string]uint64 {
	counts, err := v.Datapath.GTPCounts()
	if err != nil {
		v.log.Error("packets of mobile users cannot be counted", "error", err)
	}
	return counts
}

// FTPExpectations leaves out unreadable counters.
func (v view) FTPExpectations() report.FTPExpectations {
	e, err := v.Datapath.FTPExpectations()
	if err != nil {
		v.log.Error("data connections of FTP cannot be counted", "error", err)
	}
	return e
}

// Drops leaves out unreadable counters.
func (v view) Drops() map[string]uint64 {
	drops, err := v.Datapath.Drops()
	if err != nil {
		v.log.Error("drops cannot be read", "error", err)
	}
	return drops
}

// DropBytes leaves out unreadable counters.
func (v view) DropBytes() map[string]uint64 {
	drops, err := v.Datapath.DropBytes()
	if err != nil {
		v.log.Error("drops cannot be read", "error", err)
	}
	return drops
}

// Lifetimes returns nothing if they cannot be read.
func (v view) Lifetimes() []report.Lifetimes {
	list, err := v.Datapath.Lifetimes()
	if err != nil {
		v.log.Error("lifetimes of connections cannot be read", "error", err)
	}
	return list
}

// MapUses returns nothing if the sizes cannot be read.
func (v view) MapUses() []report.MapUse {
	list, err := v.Datapath.MapUses()
	if err != nil {
		v.log.Error("sizes of maps cannot be read", "error", err)
	}
	return list
}

// Pressure leaves out unreadable counts.
func (v view) Pressure() report.Pressure {
	p, err := v.Datapath.Pressure()
	if err != nil {
		v.log.Error("challenges cannot be read", "error", err)
	}
	return p
}

// unknownObjects returns a status for each stored object that this version does not understand.
func unknownObjects(state *desired.State) (list []status.Status) {
	for u := range state.Snapshot().Unknown() {
		list = append(list, status.Status{
			ID: status.ID(u.ID), Desired: u.Version,
			Err: fmt.Errorf("it is kept and not served, since this loxilb does not understand it: %s", u.Reason),
		})
	}
	return list
}

// Interfaces returns the interfaces where programs are attached.
func (v view) Interfaces() []attach.Interface { return v.Hooks.Attached() }
