package objects

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// affectedTimeout bounds how long a plan looks through connections. Beyond that, it reports less.
const affectedTimeout = 3 * time.Second

// affectedService is a service of a plan, with the endpoints that keep connections and the counts.
type affectedService struct {
	change             *v1.Change
	key                lb.Key
	vips               []netip.Addr
	kept               map[lb.Endpoint]bool
	live, disconnected uint64
}

// countAffected counts the connections that a change ends. It reads connections, not counters:
// these include finished connections, and do not show what firewall rules end.
func (a *API) countAffected(ctx context.Context, out *v1.ApplyResult, before, after *store.Snapshot, l *lockout) {
	droppedBefore, droppedAfter := func(*report.Connection) bool { return false }, func(*report.Connection) bool { return false }
	if l != nil && l.after != nil && a.Dropper != nil {
		droppedBefore, droppedAfter = a.Dropper(l.before), a.Dropper(l.after)
	}
	services := a.affectedServices(out.Changes, before, after)
	if len(services) == 0 && (l == nil || l.after == nil) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, affectedTimeout)
	defer cancel()
	err := a.DataPath.Connections(ctx, func(n report.Connection) bool {
		if n.Reply || n.State == "closed" {
			return true
		}
		for _, t := range services[n.Service] {
			t.count(&n)
		}
		if droppedAfter(&n) && !droppedBefore(&n) {
			out.RuleCut++
		}
		return true
	})
	if err != nil {
		return // the counters remain as an estimate
	}
	for _, list := range services {
		for _, t := range list {
			t.change.Connections, t.change.Cut = t.live, t.disconnected
		}
	}
}

// affectedServices returns the services of a plan that have connections, by their names in
// connections.
func (a *API) affectedServices(changes []v1.Change, before, after *store.Snapshot) map[string][]*affectedService {
	out := map[string][]*affectedService{}
	for i := range changes {
		c := &changes[i]
		key, err := lb.ParseKey(c.Name)
		if c.Kind != kinds.ServiceDocument || c.Connections == 0 || err != nil {
			continue
		}
		was, _ := a.Store.Services.Get(before, key)
		is, _ := a.Store.Services.Get(after, key)
		t := &affectedService{change: c, key: key, vips: append([]netip.Addr{key.VIP}, was.AdditionalVIPs()...), kept: KeptEndpoints(&is)}
		name := cmp.Or(was.Name, key.String())
		out[name] = append(out[name], t)
	}
	return out
}

// count counts a connection of the service, and whether it loses its endpoint.
func (t *affectedService) count(n *report.Connection) {
	if !n.BelongsTo(t.key, t.vips) {
		return
	}
	t.live++
	if !t.kept[lb.Endpoint{Addr: n.ConfiguredEndpoint.Addr(), Port: n.ConfiguredEndpoint.Port()}] {
		t.disconnected++
	}
}

// KeptEndpoints returns the endpoints of a service, where connections stay, by address and port.
func KeptEndpoints(s *lb.Service) map[lb.Endpoint]bool {
	kept := make(map[lb.Endpoint]bool, len(s.Endpoints))
	for _, e := range s.Endpoints {
		kept[lb.Endpoint{Addr: e.Addr, Port: e.Port}] = true
	}
	return kept
}
