package httpapi

import (
	"context"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/manifest"
	"loxilb/internal/store"
)

// touchWork is for how long a plan looks through connections. Of more than that takes, it says less.
const touchWork = 3 * time.Second

// touched is a service of a plan, and where its connections may stay.
type touched struct {
	change *v1.Change
	of     filter
	kept   map[lb.Endpoint]bool
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
	_ = a.DataPath.Connections(ctx, func(n lb.Connection) bool { // what is not seen is counted as before
		switch {
		case n.Reply:
		case n.State == "closed":
			for _, t := range services[n.Service] {
				t.over(&n)
			}
		case is(&n) && !was(&n):
			out.RuleCut++
		}
		return true
	})
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
		t := &touched{change: c, of: filter{service: &key, vips: append(was.Secondary, key.VIP)}, kept: keptEndpoints(&is)}
		name := was.Name
		if name == "" {
			name = key.String()
		}
		out[name] = append(out[name], t)
	}
	return out
}

// over takes a connection from the counts that has ended, and waits to be forgotten.
func (t *touched) over(n *lb.Connection) {
	if !t.of.ofService(n) || t.change.Connections == 0 {
		return
	}
	t.change.Connections--
	if !t.kept[lb.Endpoint{Addr: n.Of.Addr(), Port: n.Of.Port()}] && t.change.Cut > 0 {
		t.change.Cut--
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
