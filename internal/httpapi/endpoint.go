package httpapi

import (
	"errors"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// maxUsersShown bounds the services that an answer lists for an address that is probed.
const maxUsersShown = 100

// CreateEndpoint has an address probed, or changes how.
func (a *API) CreateEndpoint(w http.ResponseWriter, r *http.Request) {
	e, p := decoded(a, w, r, a.codec.decodeEndpoint)
	if p == nil {
		if err := a.probeFiles(&e.Probe); err != nil {
			p = endpointProblem(err)
		}
	}
	if p != nil {
		p.write(w)
		return
	}
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, a.Store.Endpoints, e.Key()); err != nil {
			return err
		}
		if err := a.Store.Endpoints.Put(tx, e); err != nil {
			return err
		}
		if !tx.Changed() {
			return refuse(http.StatusConflict, "endpoint %s exists already with the same content", e.Key())
		}
		return nil
	})
}

// decodeEndpoint reads and checks an endpoint without looking at the store.
func (c *codec) decodeEndpoint(data []byte) (e lb.EndpointProbe, p *problem) {
	body, p := decodeBody[v1.EndpointProbe](data)
	if p != nil {
		return e, p
	}
	return c.probeOf(body)
}

// probeOf turns what a request says into an endpoint that passed lb's validation.
func (c *codec) probeOf(body *v1.EndpointProbe) (e lb.EndpointProbe, p *problem) {
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

// endpointProblem renames the field of an error into the words that the contract has for endpoints.
func endpointProblem(err error) *problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return refuse(http.StatusBadRequest, "%v", err)
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
	return fieldProblem(http.StatusBadRequest, renamed(name, fe))
}

// GetEndpoints answers with all that is probed.
func (a *API) GetEndpoints(w http.ResponseWriter, r *http.Request) {
	out := newStream(w, "Attr")
	for e := range a.Health.Endpoints {
		if r.Context().Err() != nil || !out.item(a.codec.endpointAnswer(e)) {
			return
		}
	}
	out.end()
}

// endpointAnswer is an address that is probed as the contract writes it, so that it can be sent back as it is.
func (c *codec) endpointAnswer(h *lb.EndpointHealth) *v1.EndpointProbe {
	e := &v1.EndpointProbe{}
	get(e, c.probe, &h.EndpointProbe)
	e.Name = h.Key()
	e.ProbeDuration = int((h.Probe.Interval + time.Second - 1) / time.Second)
	e.MinDelay, e.AvgDelay, e.MaxDelay = delay(h.MinDelay), delay(h.AvgDelay), delay(h.MaxDelay)
	e.CurrState = hostState(h.State)
	if h.Red {
		e.CurrState = "red"
	}
	e.Since, e.Checked, e.Evidence, e.Object = h.Since, h.Checked, h.Evidence, h.Object
	for _, k := range h.Services[:min(len(h.Services), maxUsersShown)] {
		e.Services = append(e.Services, k.String())
	}
	for _, c := range h.History {
		e.History = append(e.History, v1.EndpointChange{Time: c.At, From: hostState(c.From), To: hostState(c.To), Evidence: c.Evidence})
	}
	return e
}

// hostState is the contract's word.
func hostState(s lb.HealthState) string {
	switch s {
	case lb.HealthUp:
		return "ok"
	case lb.HealthDown:
		return "nok"
	}
	return "unknown"
}

func delay(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(time.Microsecond).String()
}

// DeleteEndpoint deletes an object; what services have probed goes on.
func (a *API) DeleteEndpoint(w http.ResponseWriter, r *http.Request, ip string, params v1.DeleteEndpointParams) {
	e, err := endpointOf(ip, &params)
	if err != nil {
		pathProblem(err).write(w)
		return
	}
	key := e.Key()
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, a.Store.Endpoints, key); err != nil {
			return err
		}
		if old, there := a.Store.Endpoints.Get(tx, key); there && old.Addr != e.Addr {
			return refuseField(http.StatusNotFound, "ip_address", ip, "is not the address of endpoint "+key, old.Addr.String())
		}
		return tx.Delete(a.Store.Endpoints.ID(key))
	})
}

// endpointOf is the object that a path and its parameters name.
func endpointOf(ip string, params *v1.DeleteEndpointParams) (e lb.EndpointProbe, err error) {
	if e.Addr, err = lb.ParseAddr("ip_address", ip); err != nil {
		return e, err
	}
	e.Name = params.Name
	if e.Probe.Type, err = lb.ParseProbeType(params.ProbeType); err != nil {
		return e, named("probe_type", err)
	}
	if params.ProbePort != "" {
		if e.Probe.Port, err = lb.ParsePort("probe_port", params.ProbePort); err != nil {
			return e, err
		}
	}
	if err := lb.ValidateName(e.Name); err != nil {
		return e, err
	}
	return e.Normal(), nil
}
