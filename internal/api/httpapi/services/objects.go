package services

import (
	"cmp"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/host/monotime"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// serviceObjects returns the Kind of services.
func (a *API) serviceObjects() objects.Kind {
	services := a.Store.Services
	find := func(v store.View, key string) (lb.Service, bool) {
		k, err := lb.ParseKey(key)
		if err != nil {
			return lb.Service{}, false
		}
		return services.Get(v, k)
	}
	return objects.Kind{
		Words: kinds.Service().Words,
		Read:  a.readService,
		Show: func(v store.View, key string) any {
			s, ok := find(v, key)
			if !ok {
				return nil
			}
			return a.codec.showService(&s)
		},
		Keys: func(v store.View) iter.Seq[string] {
			return func(yield func(string) bool) {
				for s := range services.All(v) {
					if !yield(s.Key.String()) {
						return
					}
				}
			}
		},
		Managed: func(v store.View, key string) bool {
			s, ok := find(v, key)
			return ok && s.Managed
		},
		Live: func(before, after *store.Snapshot, key string) (connections, cut uint64) {
			was, there := find(before, key)
			if !there {
				return 0, 0
			}
			is, stays := find(after, key)
			return a.serviceConnections(&was, &is, stays)
		},
	}
}

// serviceConnections counts the connections of a service, and its connections at endpoints that a
// change removes.
func (a *API) serviceConnections(was, is *lb.Service, stays bool) (connections, cut uint64) {
	stats, _ := a.DataPath.ServiceStats(was.Key)
	if !stays {
		return stats.Active, stats.Active
	}
	kept := objects.KeptEndpoints(is)
	for i, e := range was.Endpoints {
		if !kept[lb.Endpoint{Addr: e.Addr, Port: e.Port}] && i < len(stats.Endpoints) {
			cut += stats.Endpoints[i].Active
		}
	}
	return stats.Active, cut
}

func (a *API) readService(o *v1.Object, keyOnly bool) (objects.Wanted, *rest.Problem) {
	e, p := rest.UnmarshalStrict[v1.LoadbalanceEntry](o.Spec)
	if p != nil {
		return objects.Wanted{}, p
	}
	if keyOnly {
		var s lb.Service
		err := set(&s, a.codec.key, e)
		if err == nil {
			err = onePort(&s.Key)
		}
		if err != nil {
			return objects.Wanted{}, entryProblem("", -1, err)
		}
		return objects.Wanted{Key: s.Key.String()}, nil
	}
	if p := setName(o, &e.ServiceArguments.Name); p != nil {
		return objects.Wanted{}, p
	}
	r, p := a.codec.request(notInList, e)
	if p != nil {
		return objects.Wanted{}, p
	}
	if r.oper != operReplace {
		return objects.Wanted{}, rest.RefuseField(http.StatusBadRequest, "serviceArguments.oper",
			strconv.Itoa(e.ServiceArguments.Oper), "changes endpoints only", "0 or no value: files describe the whole service")
	}
	if err := a.probeFiles(&r.Probe); err != nil {
		return objects.Wanted{}, entryProblem("", -1, err)
	}
	return objects.Wanted{Key: r.Key.String(), Value: r.Service, Put: func(tx *store.Tx) error {
		var notes rest.Warnings // the answer lists the changes
		err := r.put(tx, a.Store.Services, a.codec, &notes)
		if fe := (*lb.FieldError)(nil); errors.As(err, &fe) {
			return entryProblem("", a.codec.refusedEndpoint(&r.Service, err), err)
		}
		return err
	}}, nil
}

// setName sets an empty name to that of the metadata.
func setName(o *v1.Object, name *string) *rest.Problem {
	metadata, p := objects.Metadata(o)
	given, there := metadata["name"]
	text, ok := given.(string)
	switch {
	case p != nil || !there || *name != "":
		return p
	case !ok:
		return rest.RefuseField(http.StatusBadRequest, "metadata.name", "", "is not a string", "")
	}
	*name = text
	return nil
}

// showService returns a service as a POST body, without properties that change by themselves.
func (c *codec) showService(s *lb.Service) *v1.LoadbalanceEntry {
	e := &v1.LoadbalanceEntry{Endpoints: make([]v1.Endpoint, len(s.Endpoints))}
	get(e, c.key, s)
	get(e, c.fields, s)
	for i := range s.Endpoints {
		get(&e.Endpoints[i], c.endpoint, &s.Endpoints[i])
	}
	return e
}

// readEndpoint reads an endpoint of a list.
func (a *API) readEndpoint(spec []byte) (e lb.EndpointProbe, p *rest.Problem) {
	body, p := rest.UnmarshalStrict[v1.EndpointProbe](spec)
	if p != nil {
		return e, p
	}
	if e, p = a.codec.probeOf(body); p != nil {
		return e, p
	}
	if err := a.probeFiles(&e.Probe); err != nil {
		return e, endpointProblem(err)
	}
	return e, nil
}

// showEndpoint returns an endpoint as a POST body.
func (c *codec) showEndpoint(e *lb.EndpointProbe) any {
	out := struct {
		v1.EndpointProbe
		MinDelay  *struct{} `json:"minDelay,omitempty"` // POST ignores this and the following members
		AvgDelay  *struct{} `json:"avgDelay,omitempty"`
		MaxDelay  *struct{} `json:"maxDelay,omitempty"`
		CurrState *struct{} `json:"currState,omitempty"`
	}{}
	get(&out.EndpointProbe, c.probe, e)
	out.Name = e.Key()
	out.ProbeDuration = v1.Seconds(secondsOf(e.Probe.Interval)) // for the existing loxilb
	return out
}

// drainSpec is a drain in a list: the form of POST, or the time that GET shows.
type drainSpec struct {
	Endpoint string     `json:"endpoint"`
	Rate     int        `json:"rate,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Within   v1.Seconds `json:"within,omitempty"`

	Connections int        `json:"connections,omitempty"` // ignored, as done is
	Done        *time.Time `json:"done,omitempty"`
}

// drainObjects returns the Kind of drains.
func (a *API) drainObjects() objects.Kind {
	row := objects.KindOf(kinds.Drain().Words, a.Store.Drains.Table, objects.Plain(readDrain), func(d *lb.Drain) any {
		out := drainSpec{Endpoint: d.Key(), Rate: d.Rate}
		if !d.Deadline.IsZero() {
			at := d.Deadline.UTC().Round(time.Millisecond)
			out.Deadline = &at
		}
		return out
	}, rest.BadRequest)
	row.Check = func(tx *store.Tx, w *objects.Wanted) error {
		d, ok := w.Value.(lb.Drain)
		if _, had := a.Store.Drains.Get(tx.Before(), w.Key); had || !ok {
			return nil
		}
		_, err := a.checkDrained(tx, &d) // services may be created later, as by a controller
		return err
	}
	row.Live = func(before, _ *store.Snapshot, key string) (connections, _ uint64) {
		d, err := lb.ParseDrain(key)
		if err != nil {
			return 0, 0
		}
		for s := range a.Store.Services.All(before) {
			stats, _ := a.DataPath.ServiceStats(s.Key)
			for i, e := range s.Endpoints {
				if d.Matches(e.Addr, e.Port) && i < len(stats.Endpoints) {
					connections += stats.Endpoints[i].Active
				}
			}
		}
		return connections, 0
	}
	return row
}

func readDrain(spec []byte) (d lb.Drain, p *rest.Problem) {
	body, p := rest.UnmarshalStrict[drainSpec](spec)
	if p != nil {
		return d, p
	}
	d, err := lb.ParseDrain(body.Endpoint)
	switch {
	case err != nil:
		return d, rest.BadRequest(err)
	case body.Within < 0 || body.Within > maxWithin:
		return d, rest.RefuseField(http.StatusBadRequest, "within", body.Within.String(), "is out of range", "0 to "+strconv.Itoa(maxWithin)+" seconds")
	case body.Deadline != nil && time.Until(*body.Deadline) > maxWithin*time.Second:
		return d, rest.RefuseField(http.StatusBadRequest, "deadline", body.Deadline.Format(time.RFC3339), "is out of range", "at most a year from now")
	case body.Deadline != nil:
		d.Deadline = monotime.FromWall(*body.Deadline)
	case body.Within > 0:
		d.Deadline = time.Now().Add(time.Duration(body.Within) * time.Second)
	}
	d.Rate = cmp.Or(body.Rate, DrainRate)
	if err := d.Validate(); err != nil {
		return d, rest.BadRequest(err)
	}
	return d, nil
}

// ReadBootService reads a service from a POST body.
func (a *API) ReadBootService(data []byte) (objects.Edit, *rest.Problem) {
	list, _, p := a.codec.decodeServices(data)
	if p != nil {
		return nil, p
	}
	for i := range list {
		if err := a.probeFiles(&list[i].Probe); err != nil {
			return nil, entryProblem(list[i].at, -1, err)
		}
	}
	return func(tx *store.Tx, notes *rest.Warnings) error {
		for i := range list {
			notes.Join(&list[i].notes)
			if err := list[i].put(tx, a.Store.Services, a.codec, notes); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// ReadBootEndpoint reads an endpoint from a POST body.
func (a *API) ReadBootEndpoint(data []byte) (objects.Edit, *rest.Problem) {
	var notes rest.Warnings
	e, p := a.codec.decodeEndpoint(data, &notes)
	if p != nil {
		return nil, p
	}
	if err := a.probeFiles(&e.Probe); err != nil {
		return nil, endpointProblem(err)
	}
	return func(tx *store.Tx, all *rest.Warnings) error {
		all.Join(&notes)
		return a.Store.Endpoints.Put(tx, e)
	}, nil
}
