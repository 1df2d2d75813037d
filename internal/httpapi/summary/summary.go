// Package summary answers how services are, in short: searched, sorted and in pages, for those who show many of them.
package summary

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/rates"
	"loxilb/internal/status"
	"loxilb/internal/store"
)

// Counters are those of the data path.
type Counters interface {
	// ServiceStats is false for a service that the data path does not have (yet).
	ServiceStats(key lb.Key) (lb.ServiceStats, bool)
	// EachServiceStats yields what those of the services that the data path has (by now) have counted, by their places in the list.
	EachServiceStats(keys []lb.Key, yield func(place int, s *lb.ServiceStats))
}

// Health tells how endpoints are.
type Health interface {
	EndpointState(s *lb.Service, e lb.Endpoint) (lb.HealthState, bool)
	EndpointHealth(s *lb.Service, e lb.Endpoint) (lb.EndpointHealth, bool)
}

// Loads are the rates of services, and how many connections they have, as they were read last.
type Loads interface {
	Service(key lb.Key) rates.Load
}

// Statuses tell what the data path has.
type Statuses interface {
	Get(id status.ID) (status.Status, bool)
}

// Summary has the operations about services in short.
type Summary struct {
	store    *desired.State
	counters Counters
	loads    Loads
	health   Health
	statuses Statuses
	entry    func(*store.Snapshot, *lb.Service) *v1.LoadbalanceEntry
}

// New answers by these parts; entry is a service as the API writes it.
func New(s *desired.State, c Counters, l Loads, h Health, st Statuses, entry func(*store.Snapshot, *lb.Service) *v1.LoadbalanceEntry) Summary {
	return Summary{s, c, l, h, st, entry}
}

// The states of a service, the worst first.
const (
	failed   = "failed"
	down     = "down"
	degraded = "degraded"
	pending  = "pending"
	ok       = "ok"
)

func states() []string { return []string{failed, down, degraded, pending, ok} }

// at is the desired state that an answer is about.
type at struct {
	Summary
	now    *store.Snapshot
	drains map[netip.AddrPort]bool // of addresses, without a port, and of single ports
}

func (a Summary) at(now *store.Snapshot) *at {
	out := &at{Summary: a, now: now, drains: map[netip.AddrPort]bool{}}
	for d := range a.store.Drains.All(now) {
		out.drains[netip.AddrPortFrom(d.Addr, d.Port)] = true
	}
	return out
}

func (a *at) drained(e *lb.Endpoint) bool {
	return len(a.drains) > 0 && (a.drains[e.AddrPort()] || a.drains[netip.AddrPortFrom(e.Addr, 0)])
}

// of is a service in short, but for what is counted of it.
func (a *at) of(s *lb.Service) v1.ServiceSummary {
	out := v1.ServiceSummary{
		Key: s.Key.String(), Name: s.Name, Protocol: s.Protocol.String(), Mode: s.Mode.String(), Algorithm: s.Algorithm.String(), Endpoints: len(s.Endpoints),
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		state, _ := a.health.EndpointState(s, *e)
		drained := a.drained(e)
		switch {
		case state == lb.HealthDown:
			out.Down++
		case !drained && e.Weight > 0:
			out.Up++
		}
		if drained {
			out.Drained++
		}
	}
	out.State, out.Error = a.stateOf(s, &out)
	return out
}

func (a *at) stateOf(s *lb.Service, counted *v1.ServiceSummary) (state, why string) {
	id := desired.ServiceID(s.Key)
	meta, _ := a.now.Meta(id)
	applied, known := a.statuses.Get(status.ID(id))
	applied.Desired = max(applied.Desired, meta.Version)
	switch {
	case applied.Err != nil:
		return failed, applied.Err.Error()
	case !known || applied.Applied < applied.Desired:
		return pending, ""
	case counted.Up == 0:
		return down, ""
	case counted.Down > 0:
		return degraded, ""
	}
	return ok, ""
}

// count adds what is counted of a service.
func count(out *v1.ServiceSummary, load rates.Load, stats *lb.ServiceStats) {
	out.Rate, out.Traffic = load.Rates[rates.Connections], load.Bytes()
	out.Connections, out.Opened = stats.Active, stats.Connections
	out.Packets, out.Bytes = stats.In.Packets+stats.Out.Packets, stats.In.Bytes+stats.Out.Bytes
}

// found tells whether a service has the text that is searched for.
func found(s *lb.Service, text string) bool {
	if text == "" || strings.Contains(strings.ToLower(s.Name), text) || strings.Contains(s.Key.String(), text) {
		return true
	}
	return slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return strings.HasPrefix(e.Addr.String(), text) })
}

// row is a service that is found.
type row struct {
	key  lb.Key
	load rates.Load
	v1.ServiceSummary
}

// compare is how two of them are in order.
func compare(by string, a, b *row) int {
	switch by {
	case "name":
		return cmp.Compare(a.Name, b.Name)
	case "state":
		return cmp.Compare(slices.Index(states(), a.State), slices.Index(states(), b.State))
	case "endpoints":
		return cmp.Compare(a.Endpoints, b.Endpoints)
	case "connections":
		return cmp.Compare(a.load.Active, b.load.Active)
	case "rate":
		return cmp.Compare(a.load.Rates[rates.Connections], b.load.Rates[rates.Connections])
	case "traffic":
		return cmp.Compare(a.load.Bytes(), b.load.Bytes())
	}
	return 0 // they come in the order of keys
}

func orders() []string {
	return []string{"key", "name", "state", "endpoints", "connections", "rate", "traffic"}
}
