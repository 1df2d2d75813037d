package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

const (
	// drainRate is how many connections a second are ended after the deadline, if the request does not say.
	drainRate = 200
	// maxWithin is the longest time until the deadline, in seconds: a year.
	maxWithin = 365 * 24 * 3600
)

// DrainEndpoint has an endpoint take no new connections.
func (a *API) DrainEndpoint(w http.ResponseWriter, r *http.Request) {
	d, p := decoded(a, w, r, decodeDrain)
	if p != nil {
		p.write(w)
		return
	}
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, a.Store.Drains, d.Key()); err != nil {
			return err
		}
		if !a.hasEndpoint(&d) {
			return refuseField(http.StatusNotFound, "endpoint", d.Key(), "is no endpoint of any service", "")
		}
		return a.Store.Drains.Put(tx, d)
	})
}

func decodeDrain(data []byte) (d lb.Drain, p *problem) {
	body, p := decodeBody[v1.DrainRequest](data)
	if p != nil {
		return d, p
	}
	d, err := lb.ParseDrain(body.Endpoint)
	if err != nil {
		return d, pathProblem(err)
	}
	if body.Within < 0 || body.Within > maxWithin {
		return d, refuseField(http.StatusBadRequest, "within", strconv.Itoa(body.Within), "is out of range", "0 to "+strconv.Itoa(maxWithin)+" seconds")
	}
	if body.Within > 0 {
		d.Deadline = time.Now().Add(time.Duration(body.Within) * time.Second)
	}
	d.Rate = cmp.Or(body.Rate, drainRate)
	if err := d.Validate(); err != nil {
		return d, pathProblem(err)
	}
	return d, nil
}

// hasEndpoint tells whether a service has an endpoint that is to be drained.
func (a *API) hasEndpoint(d *lb.Drain) bool {
	for s := range a.Store.Services.All(a.Store.Snapshot()) {
		if slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return d.Has(e.Addr, e.Port) }) {
			return true
		}
	}
	return false
}

// UndrainEndpoint lets an endpoint take new connections again.
func (a *API) UndrainEndpoint(w http.ResponseWriter, r *http.Request, params v1.UndrainEndpointParams) {
	d, err := lb.ParseDrain(params.Endpoint)
	if err != nil {
		pathProblem(err).write(w)
		return
	}
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, a.Store.Drains, d.Key()); err != nil {
			return err
		}
		if _, drained := a.Store.Drains.Get(tx, d.Key()); !drained {
			return refuse(http.StatusNotFound, "endpoint %s is not drained: loxicmd get drain shows which are", d.Key())
		}
		return tx.Delete(a.Store.Drains.ID(d.Key()))
	})
}

// GetDrains answers with what is drained, and what that has left.
func (a *API) GetDrains(w http.ResponseWriter, r *http.Request) {
	drains := slices.Collect(a.Store.Drains.All(a.Store.Snapshot()))
	left := make([]int, len(drains))
	if len(drains) > 0 {
		err := a.DataPath.Connections(r.Context(), func(c lb.Connection) bool {
			for i := range drains {
				if !c.Reply && c.State != "closed" && drains[i].Has(c.Endpoint.Addr(), c.Endpoint.Port()) {
					left[i]++
				}
			}
			return true
		})
		if err != nil {
			refuse(http.StatusServiceUnavailable, "the connections can't be read: %v", err).write(w)
			return
		}
	}
	out := v1.DrainList{DrainAttr: []v1.Drain{}}
	now := time.Now()
	for i := range drains {
		out.DrainAttr = append(out.DrainAttr, drainAnswer(&drains[i], left[i], now))
	}
	writeJSON(w, out)
}

// drained tells whether one of the drains is about an endpoint.
func drained(drains []lb.Drain, e *lb.Endpoint) bool {
	return slices.ContainsFunc(drains, func(d lb.Drain) bool { return d.Has(e.Addr, e.Port) })
}

func drainAnswer(d *lb.Drain, left int, now time.Time) v1.Drain {
	out := v1.Drain{Endpoint: d.Key(), Rate: d.Rate, Connections: left}
	if d.Deadline.IsZero() {
		return out
	}
	begin := d.Deadline
	if now.After(begin) {
		begin = now
	}
	done := begin.Add(time.Duration(left) * time.Second / time.Duration(d.Rate)).Round(time.Second).UTC()
	at := d.Deadline.UTC()
	out.Deadline, out.Done = &at, &done
	return out
}
