package network

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/lb/netobj"
)

func routeKind(a *API) netKind[netobj.Route] {
	return netKind[netobj.Route]{table: a.Store.Routes, kernel: a.Network.Routes, of: netobj.RouteFromKey}
}

// RouteReads returns the limits of requests for routes, since each page reads the whole table.
func RouteReads() rest.ShareLimits {
	return rest.ShareLimits{All: 8, Users: 6, User: 3, Verb: "read routes", Instead: "end one of these requests"}
}

// CreateRoute adds a route to the main table.
func (a *API) CreateRoute(w http.ResponseWriter, r *http.Request, _ v1.CreateRouteParams) {
	createNet(a, w, r, routeKind(a), func(body *v1.Route) (netobj.Route, error) {
		return netobj.ParseRoute(body.DestinationIPNet, body.Gateway, body.Protocol)
	})
}

// DeleteRoute deletes a route of the main table. Of several routes, it deletes the one configured
// here, or otherwise the one with the lowest metric.
func (a *API) DeleteRoute(w http.ResponseWriter, r *http.Request, ip, mask string, _ v1.DeleteRouteParams) {
	to, err := netobj.ParseDestination(ip + "/" + mask)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	key, err := a.routeTo(r.Context(), to)
	if err != nil {
		objects.KernelProblem(err).Write(w)
		return
	}
	deleteNet(a, w, r, routeKind(a), key)
}

// routeTo returns the key of the route to a network that was configured here, or otherwise of the
// route with the lowest metric.
func (a *API) routeTo(ctx context.Context, to netip.Prefix) (key string, err error) {
	usual := netobj.Route{Destination: to}
	if _, wanted := a.Store.Routes.Get(a.Store.Snapshot(), usual.Key()); wanted {
		return usual.Key(), nil
	}
	if quick, ok := a.Network.Routes.(netobj.Lookup[netobj.Route]); ok {
		if _, known := quick.Lookup(usual); known {
			return usual.Key(), nil
		}
	}
	var seen []netobj.ObservedRoute
	err = a.Network.Routes.EachObserved(func(s *netobj.ObservedRoute) bool {
		if s.Destination == to {
			seen = append(seen, *s)
		}
		return ctx.Err() == nil
	})
	if err != nil || len(seen) == 0 {
		return usual.Key(), err
	}
	return slices.MinFunc(seen, func(a, b netobj.ObservedRoute) int { return cmp.Compare(a.Metric, b.Metric) }).Key(), nil
}

// GetRoutes replies with the requested routes of the main table. It streams them, without holding
// the table in memory.
func (a *API) GetRoutes(w http.ResponseWriter, r *http.Request, params v1.GetRoutesParams) {
	q, p := rest.ParseQuery(routeFields(), params.Name, params.Selector, "", params.Limit, params.Continue)
	if p == nil && q.Check() != nil {
		p = rest.Refuse(http.StatusBadRequest, "%v", q.Check())
	}
	if p != nil {
		p.Write(w)
		return
	}
	who := rest.PrincipalOf(r)
	if p := a.RouteReaders.Enter(who); p != nil {
		w.Header().Set("Retry-After", "1")
		p.Write(w)
		return
	}
	defer a.RouteReaders.Leave(who)
	var failed error
	list := listing.List[*routeRow]{
		Rows:       func(yield func(*routeRow) bool) { failed = a.eachRoute(r.Context(), yield) },
		Key:        (*routeRow).key,
		Passed:     passedRoutes(),
		OtherNames: func(row *routeRow) []string { return []string{row.seen.Destination.String()} },
		Values:     func(row *routeRow, path string) []string { return routeFields().Values(routeAnswer(row.seen), path) },
	}
	var out *rest.List // begins with the first route: an error before it is a separate answer
	begin := func() *rest.List {
		if out == nil {
			out = rest.NewList(w, "routeAttr")
		}
		return out
	}
	next := list.Page(q, func(row *routeRow) bool { return begin().Item(routeAnswer(row.seen)) })
	switch {
	case failed != nil && out == nil:
		objects.KernelProblem(failed).Write(w)
	case failed == nil && r.Context().Err() == nil:
		begin().EndPage(next)
	}
}

// routeFields are the fields to select routes by.
var routeFields = sync.OnceValue(func() *listing.Fields { return listing.FieldsOf[v1.RouteEntry](nil) })

// routeRow is a path of a route, and its place in the table.
type routeRow struct {
	seen  *netobj.ObservedRoute
	place routePlace
}

// routePlace identifies a path in a table. Several paths may have the same destination, TOS and
// metric.
type routePlace struct {
	to     netip.Prefix
	tos    uint8
	metric int
	n      int // index among these
}

func (r *routeRow) key() string {
	return fmt.Sprintf("%s %d %d %d", r.place.to, r.place.tos, r.place.metric, r.place.n)
}

func parseRoutePlace(key string) (p routePlace) {
	var to string
	if n, err := fmt.Sscanf(key, "%s %d %d %d", &to, &p.tos, &p.metric, &p.n); err == nil && n == 4 {
		p.to, _ = netip.ParsePrefix(to)
	}
	return p
}

// compare orders places as the kernel does: IPv4 by addresses, a longer prefix before a shorter one
// of the same address, higher TOS before lower ones; IPv6 by addresses, longer prefixes before a
// shorter one that contains them.
func (p *routePlace) compare(q *routePlace) int {
	four := p.to.Addr().Is4()
	if four != q.to.Addr().Is4() {
		if four {
			return -1
		}
		return 1
	}
	if p.to != q.to && !four {
		if p.to.Overlaps(q.to) {
			return cmp.Compare(q.to.Bits(), p.to.Bits())
		}
		return p.to.Addr().Compare(q.to.Addr())
	}
	return cmp.Or(p.to.Addr().Compare(q.to.Addr()), cmp.Compare(q.to.Bits(), p.to.Bits()), cmp.Compare(q.tos, p.tos), cmp.Compare(p.metric, q.metric), cmp.Compare(p.n, q.n))
}

// passedRoutes reports whether an earlier page had a row. Each page reads the table from its start,
// as the kernel cannot begin in the middle; comparing raw rows avoids formatting them.
func passedRoutes() func(row *routeRow, after string) bool {
	var text string
	var end routePlace
	return func(row *routeRow, after string) bool {
		if after != text {
			text, end = after, parseRoutePlace(after)
		}
		return row.place.compare(&end) <= 0
	}
}

// eachRoute yields the routes of the main table until yield returns false.
func (a *API) eachRoute(ctx context.Context, yield func(*routeRow) bool) error {
	var last routePlace
	return a.Network.Routes.EachObserved(func(s *netobj.ObservedRoute) bool {
		at := routePlace{to: s.Destination, tos: s.TOS, metric: s.Metric}
		if at.metric == 0 && at.to.Addr().Is6() {
			at.metric = netobj.DefaultMetric6
		}
		if at.to == last.to && at.tos == last.tos && at.metric == last.metric {
			at.n = last.n + 1
		}
		last = at
		return ctx.Err() == nil && yield(&routeRow{s, at})
	})
}

func routeAnswer(s *netobj.ObservedRoute) *v1.RouteEntry {
	e := &v1.RouteEntry{DestinationIPNet: s.Destination.String(), Flags: "Self", Protocol: s.Protocol, Dev: s.Dev, Metric: s.Metric}
	if s.Gateway.IsValid() {
		e.Gateway, e.Flags = s.Gateway.String(), "Ind"
	}
	if s.Destination.IsSingleIP() {
		e.Flags += " Host"
	}
	return e
}
