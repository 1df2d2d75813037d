package services

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	// DrainRate is the default number of connections ended per second after the deadline.
	DrainRate = 200
	// maxWithin is the longest time until the deadline, in seconds: a year.
	maxWithin = 365 * 24 * 3600
)

// DrainEndpoint stops new connections to an endpoint.
func (a *API) DrainEndpoint(w http.ResponseWriter, r *http.Request) {
	d, p := rest.Decode(a.Reader, w, r, decodeDrain)
	if p != nil {
		p.Write(w)
		return
	}
	var (
		unchanged bool
		notes     rest.Warnings
	)
	p = a.Objects.Change(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Drains, d.Key()); err != nil {
			return err
		}
		known, err := a.checkDrained(tx, &d)
		if err != nil {
			return err
		}
		if !known {
			return rest.RefuseField(http.StatusNotFound, "endpoint", d.Key(), "is not an endpoint of any service", "")
		}
		if err := a.Store.Drains.Put(tx, d); err != nil {
			return err
		}
		unchanged = !tx.Changed()
		notes = rest.Warnings{} // of the last try
		a.warnOfUnserved(tx, &d, &notes)
		return nil
	})
	if p == nil {
		notes.Write(w)
	}
	answerChange(w, p, unchanged)
}

// answerChange replies to a request that may have changed nothing.
func answerChange(w http.ResponseWriter, p *rest.Problem, unchanged bool) {
	switch {
	case p != nil:
		p.Write(w)
	case unchanged:
		rest.JSON(w, v1.Result{Result: "Success", Message: "unchanged"})
	default:
		rest.Success(w)
	}
}

// warnOfUnserved names the services that a drain leaves without an endpoint for new connections.
func (a *API) warnOfUnserved(v store.View, d *lb.Drain, notes *rest.Warnings) {
	drains := servicestate.DrainsOf(a.Store.Drains.All(v))
	for s := range a.Store.Services.EachShared(v) {
		if !slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return d.Matches(e.Addr, e.Port) }) {
			continue
		}
		stats, _ := a.DataPath.ServiceStats(s.Key)
		states := servicestate.Of(servicestate.Gather(s, &stats, drains, a.Health), servicestate.SyncApplied)
		if !slices.ContainsFunc(states.Endpoints, takesOver) {
			notes.Add("service %s has no endpoint left for new connections: %s", s.Key, states.Summary())
		}
	}
}

// takesOver reports whether an endpoint in this state gets new connections, or would if others
// failed.
func takesOver(s servicestate.State) bool {
	return s == servicestate.Up || s == servicestate.Unprobed || s == servicestate.Standby
}

func decodeDrain(data []byte) (d lb.Drain, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.DrainRequest](data)
	if p != nil {
		return d, p
	}
	d, err := lb.ParseDrain(body.Endpoint)
	if err != nil {
		return d, rest.BadRequest(err)
	}
	if body.Within < 0 || body.Within > maxWithin {
		return d, rest.RefuseField(http.StatusBadRequest, "within", body.Within.String(), "is out of range", "0 to "+strconv.Itoa(maxWithin)+" seconds")
	}
	if body.Within > 0 {
		d.Deadline = time.Now().Add(time.Duration(body.Within) * time.Second)
	}
	d.Rate = cmp.Or(body.Rate, DrainRate)
	if err := d.Validate(); err != nil {
		return d, rest.BadRequest(err)
	}
	return d, nil
}

// checkDrained refuses an endpoint that is itself a service: its connections are at the endpoints
// behind it. known reports whether it is an endpoint of any service.
func (a *API) checkDrained(v store.View, d *lb.Drain) (known bool, err error) {
	services := a.Store.Services.At(v)
	for s := range services.All() {
		for _, e := range s.Endpoints {
			if !d.Matches(e.Addr, e.Port) {
				continue
			}
			if known = true; !isService(services, &s, &e) {
				return true, nil
			}
		}
	}
	if known {
		return true, rest.RefuseField(http.StatusBadRequest, "endpoint", d.Key(), "is a service", "the endpoints of that service, or weight 0 for it")
	}
	return false, nil
}

// isService reports whether a service's endpoint is another service.
func isService(all desired.ServicesAt, s *lb.Service, e *lb.Endpoint) bool {
	if !all.HasVIP(e.Addr) {
		return false
	}
	_, reached := all.Reach(lb.Key{VIP: e.Addr, Port: e.Port, PortMax: e.PortMax, Protocol: s.Protocol, Mark: s.Mark})
	return reached
}

// UndrainEndpoint lets an endpoint get new connections again. Undraining an endpoint that is not
// drained succeeds with a warning, like deleting a missing object, so a script may run twice.
func (a *API) UndrainEndpoint(w http.ResponseWriter, r *http.Request, params v1.UndrainEndpointParams) {
	d, err := lb.ParseDrain(params.Endpoint)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	var unchanged bool
	p := a.Objects.Change(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Drains, d.Key()); err != nil {
			return err
		}
		if _, drained := a.Store.Drains.Get(tx, d.Key()); drained {
			unchanged = false
			return tx.Delete(a.Store.Drains.ID(d.Key()))
		}
		unchanged = true
		var notes rest.Warnings
		notes.Add("endpoint %s is not drained: loxicmd get drain lists drained endpoints", d.Key())
		notes.Write(w)
		return nil
	})
	answerChange(w, p, unchanged)
}

// GetDrains replies with the drained endpoints, and their remaining connections.
func (a *API) GetDrains(w http.ResponseWriter, r *http.Request) {
	drains := slices.Collect(a.Store.Drains.All(a.Store.Snapshot()))
	left, sockets, err := a.remainingConnections(r.Context(), drains)
	if err != nil {
		rest.Refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).Write(w)
		return
	}
	out := v1.DrainList{DrainAttr: []v1.Drain{}}
	now := time.Now()
	for i := range drains {
		d := drainAnswer(&drains[i], left[i], now)
		d.Sockets = sockets[i]
		out.DrainAttr = append(out.DrainAttr, d)
	}
	rest.JSON(w, out)
}

// remainingConnections counts, for each drain, the connections of its endpoints, and the
// connections of this machine's own sockets to them.
func (a *API) remainingConnections(ctx context.Context, drains []lb.Drain) (left, sockets []int, err error) {
	left, sockets = make([]int, len(drains)), make([]int, len(drains))
	if len(drains) == 0 {
		return left, sockets, nil
	}
	query := report.ConnectionQuery{Requests: true, MatchEndpoint: func(_ string, at netip.AddrPort) bool {
		return slices.ContainsFunc(drains, func(d lb.Drain) bool { return d.Matches(at.Addr(), at.Port()) })
	}}
	_, err = a.DataPath.ConnectionsFrom(ctx, 0, query, func(c report.Connection) bool {
		for i := range drains {
			if !c.Reply && c.State != "closed" && drains[i].Matches(c.ConfiguredEndpoint.Addr(), c.ConfiguredEndpoint.Port()) {
				left[i]++
			}
		}
		return true
	})
	own, socketsErr := a.DataPath.OwnSockets()
	for at, n := range own {
		for i := range drains {
			if drains[i].Matches(at.Addr(), at.Port()) {
				sockets[i] += int(n)
			}
		}
	}
	return left, sockets, errors.Join(err, socketsErr)
}

func drainAnswer(d *lb.Drain, left int, now time.Time) v1.Drain {
	out := v1.Drain{Endpoint: d.Key(), Rate: d.Rate, Connections: left}
	if d.Deadline.IsZero() {
		return out
	}
	until := d.Deadline.Sub(now)
	done := now.Add(max(until, 0) + time.Duration(left)*time.Second/time.Duration(d.Rate)).Round(time.Second).UTC()
	at := now.Add(until).UTC() // wall clock time
	out.Deadline, out.Done = &at, &done
	return out
}
