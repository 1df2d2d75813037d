package services

import (
	"cmp"
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Loads are the last rates and connection counts of services.
type Loads interface {
	Service(key lb.Key) rates.Load
	// Endpoints returns the loads of the endpoints of a service with this many endpoints.
	Endpoints(key lb.Key, endpoints int) []rates.Load
}

// A summarizer summarizes services of one snapshot of the desired state.
type summarizer struct {
	*API
	now    *store.Snapshot
	drains servicestate.Drains
}

func (a *API) summarizer(now *store.Snapshot) *summarizer {
	return &summarizer{API: a, now: now, drains: servicestate.DrainsOf(a.Store.Drains.All(now))}
}

// of returns the summary of a service: state and counters, without rates.
func (a *summarizer) of(s *lb.Service, stats *report.ServiceStats) v1.ServiceSummary {
	out, _ := a.summarize(s, stats)
	return out
}

// summarize returns the summary of a service, and the states of its endpoints.
func (a *summarizer) summarize(s *lb.Service, stats *report.ServiceStats) (v1.ServiceSummary, []servicestate.State) {
	out := v1.ServiceSummary{
		Key: s.Key.String(), Name: s.Name, Protocol: s.Protocol.String(), Mode: s.Mode.String(), Algorithm: s.Algorithm.String(), Endpoints: len(s.Endpoints),
	}
	applied := a.applied(s.Key)
	if applied.Err != nil {
		out.Error = applied.Err.Error()
	}
	known := servicestate.Of(servicestate.Gather(s, stats, a.drains, a.Health), servicestate.SyncOf(applied))
	out.State, out.Up, out.Down, out.Drained, out.Panic = string(known.State), known.Serving, known.Down, known.Drained, known.Panicking
	out.Connections, out.Opened = stats.Active, stats.Connections
	out.ActiveConnections, out.InactiveConnections = stats.Active, stats.Inactive
	out.Attempts, out.Refused, out.RefusedBy = stats.Attempts(), stats.Refusals.Sum(), rest.RefusedBy(&stats.Refusals)
	out.Failed, out.Unanswered = stats.Handshakes.Failed(), stats.Handshakes.Unanswered()
	out.Packets, out.Bytes = stats.In.Packets+stats.Out.Packets, stats.In.Bytes+stats.Out.Bytes
	return out, known.Endpoints
}

func (a *summarizer) applied(key lb.Key) status.Status {
	id := desired.ServiceID(key)
	meta, _ := a.now.Meta(id)
	applied, _ := a.Objects.Statuses.Get(status.ID(id))
	applied.Desired = max(applied.Desired, meta.Version)
	return applied
}

// addRates adds a service's rates and handshake times.
func addRates(out *v1.ServiceSummary, load rates.Load) {
	out.Rate, out.Traffic = load.Rates[rates.Connections], load.Bytes()
	out.Handshakes = rest.Handshakes(load.Times)
}

// hasText reports whether a service's name, key or an endpoint's address contains text.
func hasText(s *lb.Service, text string) bool {
	if text == "" || strings.Contains(strings.ToLower(s.Name), text) || strings.Contains(s.Key.String(), text) {
		return true
	}
	return slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return strings.HasPrefix(e.Addr.String(), text) })
}

// summaryRow is a service that matches a search.
type summaryRow struct {
	service *lb.Service
	load    rates.Load
	v1.ServiceSummary
}

// compareSummaries orders two rows by a property.
func compareSummaries(by string, a, b *summaryRow) int {
	switch by {
	case "name":
		return cmp.Compare(a.Name, b.Name)
	case "state":
		return cmp.Compare(slices.Index(servicestate.ServiceStates(), servicestate.State(a.State)), slices.Index(servicestate.ServiceStates(), servicestate.State(b.State)))
	case "endpoints":
		return cmp.Compare(a.Endpoints, b.Endpoints)
	case "connections":
		return cmp.Compare(a.load.Active, b.load.Active)
	case "rate":
		return cmp.Compare(a.load.Rates[rates.Connections], b.load.Rates[rates.Connections])
	case "traffic":
		return cmp.Compare(a.load.Bytes(), b.load.Bytes())
	case "latency":
		return cmp.Compare(a.load.Times.P99, b.load.Times.P99)
	}
	return 0 // already in the order of keys
}

func summaryOrders() []string {
	return []string{"key", "name", "state", "endpoints", "connections", "rate", "traffic", "latency"}
}
