package httpapi

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/manifest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// touchWork is for how long a plan looks through connections. Of more than that takes, it says less.
const touchWork = 3 * time.Second

// touched is a service of a plan, where its connections may stay, and how many it has.
type touched struct {
	change    *v1.Change
	of        filter
	kept      map[lb.Endpoint]bool
	live, cut uint64
}

// touch looks through the connections: counters do not know which of them are over, and nothing else knows what firewall rules end.
func (a *API) touch(ctx context.Context, out *v1.ApplyResult, before, after *store.Snapshot, c *severance) {
	was, is := func(*lb.Connection) bool { return false }, func(*lb.Connection) bool { return false }
	if c != nil && c.after != nil && a.Dropper != nil {
		was, is = a.Dropper(c.before), a.Dropper(c.after)
	}
	services := a.touchedServices(out.Changes, before, after)
	if len(services) == 0 && (c == nil || c.after == nil) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, touchWork)
	defer cancel()
	err := a.DataPath.Connections(ctx, func(n lb.Connection) bool {
		if n.Reply || n.State == "closed" {
			return true
		}
		for _, t := range services[n.Service] {
			t.count(&n)
		}
		if is(&n) && !was(&n) {
			out.RuleCut++
		}
		return true
	})
	if err != nil {
		return // what the counters say is as near as one gets
	}
	for _, list := range services {
		for _, t := range list {
			t.change.Connections, t.change.Cut = t.live, t.cut
		}
	}
}

// touchedServices are those of a plan that have connections, by what connections call them.
func (a *API) touchedServices(changes []v1.Change, before, after *store.Snapshot) map[string][]*touched {
	out := map[string][]*touched{}
	for i := range changes {
		c := &changes[i]
		key, err := lb.ParseKey(c.Name)
		if c.Kind != manifest.Loadbalancer || c.Connections == 0 || err != nil {
			continue
		}
		was, _ := a.Store.Services.Get(before, key)
		is, _ := a.Store.Services.Get(after, key)
		t := &touched{change: c, of: filter{service: &key, vips: append([]netip.Addr{key.VIP}, was.Secondary...)}, kept: keptEndpoints(&is)}
		name := cmp.Or(was.Name, key.String())
		out[name] = append(out[name], t)
	}
	return out
}

// count counts a connection of the service, and whether it loses its endpoint.
func (t *touched) count(n *lb.Connection) {
	if !t.of.ofService(n) {
		return
	}
	t.live++
	if !t.kept[lb.Endpoint{Addr: n.Of.Addr(), Port: n.Of.Port()}] {
		t.cut++
	}
}

// keptEndpoints are where connections of a service may stay: at its endpoints, by address and port.
func keptEndpoints(s *lb.Service) map[lb.Endpoint]bool {
	kept := make(map[lb.Endpoint]bool, len(s.Endpoints))
	for _, e := range s.Endpoints {
		kept[lb.Endpoint{Addr: e.Addr, Port: e.Port}] = true
	}
	return kept
}
