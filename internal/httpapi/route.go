package httpapi

import (
	"cmp"
	"net/http"
	"slices"

	v1 "loxilb/api/v1"
	"loxilb/internal/netobj"
)

func (a *API) routes() netKind[netobj.Route] {
	return netKind[netobj.Route]{table: a.Store.Routes, kernel: a.Network.Routes}
}

// CreateRoute adds a route to the main table.
func (a *API) CreateRoute(w http.ResponseWriter, r *http.Request, _ v1.CreateRouteParams) {
	createNet(a, w, r, a.routes(), func(body *v1.Route) (netobj.Route, error) {
		return netobj.ParseRoute(body.DestinationIPNet, body.Gateway, body.Protocol)
	})
}

// DeleteRoute deletes a route of the main table: of several, the one that users want from us, or else that of the lowest metric.
func (a *API) DeleteRoute(w http.ResponseWriter, r *http.Request, ip, mask string, _ v1.DeleteRouteParams) {
	to, err := netobj.ParseDestination(ip + "/" + mask)
	if err != nil {
		pathProblem(err).write(w)
		return
	}
	key := netobj.Route{Destination: to}.Key()
	if _, wanted := a.Store.Routes.Get(a.Store.Snapshot(), key); !wanted {
		var seen []netobj.SeenRoute
		err := a.Network.Routes.EachSeen(func(s *netobj.SeenRoute) bool {
			if s.Destination == to {
				seen = append(seen, *s)
			}
			return r.Context().Err() == nil
		})
		if err != nil {
			kernelProblem(err).write(w)
			return
		}
		if len(seen) > 0 {
			key = slices.MinFunc(seen, func(a, b netobj.SeenRoute) int { return cmp.Compare(a.Metric, b.Metric) }).Key()
		}
	}
	deleteNet(a, w, r, a.routes(), key)
}

// GetRoutes answers with the routes of the main table.
func (a *API) GetRoutes(w http.ResponseWriter, r *http.Request) {
	var out *stream // begins with the first route, as an error before it is an answer of its own
	begin := func() *stream {
		if out == nil {
			out = newStream(w, "routeAttr")
		}
		return out
	}
	err := a.Network.Routes.EachSeen(func(s *netobj.SeenRoute) bool {
		return r.Context().Err() == nil && begin().item(routeAnswer(s))
	})
	switch {
	case err != nil && out == nil:
		kernelProblem(err).write(w)
	case err == nil && r.Context().Err() == nil:
		begin().end()
	}
}

func routeAnswer(s *netobj.SeenRoute) *v1.RouteEntry {
	e := &v1.RouteEntry{DestinationIPNet: s.Destination.String(), Flags: "Self", Protocol: s.Protocol, Dev: s.Dev, Metric: s.Metric}
	if s.Gateway.IsValid() {
		e.Gateway, e.Flags = s.Gateway.String(), "Ind"
	}
	if s.Destination.IsSingleIP() {
		e.Flags += " Host"
	}
	return e
}
