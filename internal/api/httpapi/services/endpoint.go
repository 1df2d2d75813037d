package services

import (
	"errors"
	"iter"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// maxUsersShown bounds the services that an answer lists for an address that is probed.
const maxUsersShown = 100

// CreateEndpoint starts to probe an address, or changes its probe.
func (a *API) CreateEndpoint(w http.ResponseWriter, r *http.Request) {
	var notes rest.Warnings
	e, p := rest.DecodeLenient(a.Reader, w, r, func(data []byte) (lb.EndpointProbe, *rest.Problem) { return a.codec.decodeEndpoint(data, &notes) })
	if p == nil {
		if err := a.probeFiles(&e.Probe); err != nil {
			p = endpointProblem(err)
		}
	}
	if p != nil {
		p.Write(w)
		return
	}
	a.Objects.Commit(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		defer notes.Write(w)
		if err := pre.Check(tx, a.Store.Endpoints, e.Key()); err != nil {
			return err
		}
		if err := a.Store.Endpoints.Put(tx, e); err != nil {
			return err
		}
		if !tx.Changed() {
			return a.Objects.Exists("endpoint", a.Store.Endpoints.ID(e.Key()))
		}
		return nil
	})
}

// decodeEndpoint reads and checks an endpoint without looking at the store.
func (c *codec) decodeEndpoint(data []byte, notes *rest.Warnings) (e lb.EndpointProbe, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.EndpointProbe](data)
	if p != nil {
		return e, p
	}
	compat.NormalizeProbe(c.hideNative, body, notes)
	return c.probeOf(body)
}

// probeOf converts a request to an endpoint that passed lb's validation.
func (c *codec) probeOf(body *v1.EndpointProbe) (e lb.EndpointProbe, p *rest.Problem) {
	var err error
	if body.ProbeInterval, err = intervalOf(body.ProbeInterval, body.ProbeDuration); err == nil {
		err = set(&e, c.probe, body)
	}
	if err == nil {
		e = e.Normal()
		err = e.Validate()
	}
	if err != nil {
		return e, endpointProblem(err)
	}
	return e, nil
}

// endpointProblem converts an error's field to the existing loxilb's name for endpoints.
func endpointProblem(err error) *rest.Problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return rest.Refuse(http.StatusBadRequest, "%v", err)
	}
	name := fe.Field
	if name == fieldPeriod {
		name = "probeDuration"
	}
	for _, f := range lb.EndpointProbeFields() {
		if fe.Field == f.Name || fe.Field == f.Also {
			name = f.Property
		}
	}
	return rest.RefuseError(http.StatusBadRequest, rest.Renamed(name, fe))
}

// GetEndpoints replies with the probed endpoints: all, or the requested ones.
func (a *API) GetEndpoints(w http.ResponseWriter, r *http.Request, params v1.GetEndpointsParams) {
	q, p := rest.ParseQuery(endpointFields(), params.Name, params.Selector, params.SortBy, params.Limit, params.Continue)
	if p != nil {
		p.Write(w)
		return
	}
	observed := a.NewObservedEndpoints()
	list := listing.List[*report.EndpointHealth]{
		Rows: a.endpointsFor(q), Key: func(h *report.EndpointHealth) string { return h.Key() }, Order: strings.Compare,
		OtherNames: func(h *report.EndpointHealth) []string { return h.OtherNames() },
		Values: func(h *report.EndpointHealth, path string) []string {
			switch path {
			case "hostName":
				return []string{h.Addr.String()}
			case "currState":
				return []string{compat.HostState(h)}
			case "observedState":
				return []string{string(observed.state(h))}
			case "name":
				return []string{h.Key()}
			case "services":
				keys := make([]string, len(h.Services))
				for i, k := range h.Services {
					keys[i] = k.String()
				}
				return keys
			}
			return endpointFields().Values(observed.Answer(h), path)
		},
	}
	rest.WritePage(w, r, "Attr", &list, q, func(h *report.EndpointHealth) any { return observed.Answer(h) })
}

// endpointsFor returns the endpoints that may match a query: describing all takes long if they are
// many.
func (a *API) endpointsFor(q *listing.Query) iter.Seq[*report.EndpointHealth] {
	if names, few := a.endpointNames(q); few {
		return func(yield func(*report.EndpointHealth) bool) { a.Health.EndpointsNamed(names, yield) }
	}
	after := q.After()
	chosen := func(name string, at netip.Addr) bool {
		return name > after && q.Where.MayMatch(func(field string) ([]string, bool) {
			switch field {
			case "name":
				return []string{name}, true
			case "hostName":
				return []string{at.String()}, true
			}
			return nil, false
		})
	}
	return func(yield func(*report.EndpointHealth) bool) { a.Health.EndpointsWhere(chosen, yield) }
}

// endpointNames returns names and addresses of all endpoints that may match a query, if it names
// them or their services. Probes for inner services are not known here.
func (a *API) endpointNames(q *listing.Query) (names []string, few bool) {
	if len(q.Names) > 0 {
		return q.Names, true
	}
	words, isGiven := q.Where.OneOf("services")
	services := a.Store.Services.At(a.Store.Snapshot())
	for _, word := range words {
		key, err := lb.ParseKey(word)
		s, there := services.Get(key)
		if err != nil || !there {
			return nil, false
		}
		for _, e := range s.Endpoints {
			if services.HasVIP(e.Addr) {
				return nil, false
			}
			names = append(names, e.Addr.String())
		}
	}
	return names, isGiven
}

// endpointFields are the fields to select and sort endpoints by.
var endpointFields = sync.OnceValue(func() *listing.Fields {
	return listing.FieldsOf[v1.EndpointProbe](map[string]string{"state": "currState", "host": "hostName", "service": "services", "port": "probePort"})
})

// endpointAnswer returns a probed address in a form that can be posted again.
func (c *codec) endpointAnswer(h *report.EndpointHealth) *v1.EndpointProbe {
	e := &v1.EndpointProbe{}
	get(e, c.probe, &h.EndpointProbe)
	e.Name = h.Key()
	e.ProbeDuration = v1.Seconds(secondsOf(h.Probe.Interval))
	e.MinDelay, e.AvgDelay, e.MaxDelay = delay(h.MinDelay), delay(h.AvgDelay), delay(h.MaxDelay)
	e.CurrState = compat.HostState(h)
	e.Since, e.Checked, e.Evidence, e.Object = h.Since, h.Checked, h.Evidence, h.Object
	for _, k := range h.Services[:min(len(h.Services), maxUsersShown)] {
		e.Services = append(e.Services, k.String())
	}
	for _, c := range h.History {
		e.History = append(e.History, v1.EndpointChange{Time: c.At, From: probeWord(c.From), To: probeWord(c.To), Evidence: c.Evidence})
	}
	return e
}

// probeWord returns the word for a probe's result in states of endpoints.
func probeWord(s report.HealthState) string {
	return string(servicestate.Endpoint{Verdict: report.Verdict{Probe: s}, Weight: 1}.State())
}

func delay(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(time.Microsecond).String()
}

// DeleteEndpoint deletes an object; probes of services continue.
func (a *API) DeleteEndpoint(w http.ResponseWriter, r *http.Request, ip string, params v1.DeleteEndpointParams) {
	e, err := endpointOf(ip, &params)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	key := e.Key()
	a.Objects.Commit(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Endpoints, key); err != nil {
			return err
		}
		if old, there := a.Store.Endpoints.Get(tx, key); there && old.Addr != e.Addr {
			return rest.RefuseField(http.StatusNotFound, "ip_address", ip, "is not the address of endpoint "+key, old.Addr.String())
		}
		var notes rest.Warnings
		defer func() { notes.Write(w) }()
		return objects.DeleteObject(tx, a.Store.Endpoints.ID(key), &notes)
	})
}

// endpointOf returns the object that a path and its parameters name.
func endpointOf(ip string, params *v1.DeleteEndpointParams) (e lb.EndpointProbe, err error) {
	if e.Addr, err = lb.ParseAddr("ip_address", ip); err != nil {
		return e, err
	}
	e.Name = params.Name
	if e.Probe.Type, err = lb.ParseProbeType(params.ProbeType); err != nil {
		return e, rest.RenameField("probe_type", err)
	}
	if params.ProbePort != "" {
		if e.Probe.Port, err = lb.ParsePort("probe_port", params.ProbePort); err != nil {
			return e, err
		}
	}
	if err := lb.ValidateName(lb.FieldName, e.Name); err != nil {
		return e, err
	}
	return e.Normal(), nil
}
