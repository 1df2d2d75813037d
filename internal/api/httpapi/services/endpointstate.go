package services

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// observedEndpoints finds the state of probed addresses in the services that they are endpoints of.
// It computes each service once, for one answer.
type observedEndpoints struct {
	api    *API
	now    *store.Snapshot
	drains servicestate.Drains
	known  map[lb.Key]observedService
	Steps  int // endpoints of services that were looked at
}

type observedService struct {
	service *lb.Service
	states  []servicestate.State
	at      map[netip.Addr][]int // indexes of endpoints: looking at each for each address costs their square
}

// NewObservedEndpoints reads the current services.
func (a *API) NewObservedEndpoints() *observedEndpoints {
	now := a.Store.Snapshot()
	return &observedEndpoints{api: a, now: now, drains: servicestate.DrainsOf(a.Store.Drains.All(now)), known: map[lb.Key]observedService{}}
}

// Answer returns a probed address as the API shows it. Answers for the existing loxilb's clients
// have no observed state.
func (o *observedEndpoints) Answer(h *report.EndpointHealth) *v1.EndpointProbe {
	e := o.api.codec.endpointAnswer(h)
	if !o.api.Compat {
		e.ObservedState = string(o.state(h))
	}
	return e
}

// state returns the state of a probed address: the worst state in any of its services; if none is
// bad, whether any service sends it connections. An address without a service has the state of its
// probe.
func (o *observedEndpoints) state(h *report.EndpointHealth) servicestate.State {
	var found []servicestate.State
	for _, key := range h.Services[:min(len(h.Services), maxUsersShown)] {
		one := o.of(key)
		if one.service == nil {
			continue
		}
		for _, i := range one.at[h.Addr] {
			o.Steps++
			if e := one.service.Endpoints[i]; h.Probe.Port == 0 || h.Probe.Port == e.Port || h.Probe.Port == one.service.ProbeOf(e).Port {
				found = append(found, one.states[i])
			}
		}
	}
	for _, s := range []servicestate.State{
		servicestate.Down, servicestate.Panic, servicestate.Up, servicestate.Unprobed, servicestate.Standby, servicestate.Draining, servicestate.Drained,
	} {
		if slices.Contains(found, s) {
			return s
		}
	}
	alone := servicestate.Endpoint{Verdict: report.Verdict{Probe: h.State, Agent: h.AgentDown}, Weight: 1, Drained: o.drains.Has(netip.AddrPortFrom(h.Addr, h.Probe.Port))}
	return alone.State()
}

func (o *observedEndpoints) of(key lb.Key) observedService {
	one, there := o.known[key]
	if there {
		return one
	}
	if s, _ := o.api.Store.Services.Shared(o.now, key); s != nil {
		stats, _ := o.api.DataPath.ServiceStats(key)
		states := servicestate.Of(servicestate.Gather(s, &stats, o.drains, o.api.Health), servicestate.SyncApplied)
		one = observedService{s, states.Endpoints, make(map[netip.Addr][]int, len(s.Endpoints))}
		for i := range s.Endpoints {
			o.Steps++
			one.at[s.Endpoints[i].Addr] = append(one.at[s.Endpoints[i].Addr], i)
		}
	}
	o.known[key] = one
	return one
}

// agentWord is an agent's report about an endpoint.
type agentWord struct {
	addr  netip.Addr
	port  uint16       // 0: any
	probe lb.ProbeType // ProbeAuto: any
	out   bool
}

func decodeHostState(data []byte) (s agentWord, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.EndpointHostState](data)
	if p != nil {
		return s, p
	}
	var err error
	if s.addr, err = lb.ParseAddr("hostName", body.HostName); err != nil {
		return s, rest.BadRequest(err)
	}
	if s.port, err = lb.ParsePort("epPort", strconv.Itoa(body.EpPort)); err != nil {
		return s, rest.BadRequest(err)
	}
	if s.probe, err = lb.ParseProbeType(body.EpProto); err != nil {
		return s, rest.BadRequest(rest.RenameField("epProto", err))
	}
	if s.out, err = lb.ParseHostState(body.State); err != nil {
		return s, rest.BadRequest(err)
	}
	return s, nil
}

// SetEndpointHostState sets an endpoint down on a report of a user's agent, or returns it to its
// probe.
func (a *API) SetEndpointHostState(w http.ResponseWriter, r *http.Request) {
	s, p := rest.DecodeLenient(a.Reader, w, r, decodeHostState)
	if p != nil {
		p.Write(w)
		return
	}
	if a.Health.SetHostState(s.addr, s.port, s.probe, s.out) == 0 {
		p := rest.Refuse(http.StatusNotFound, "nothing is probed at %s, port %d, by %s: loxicmd get endpoint lists probed endpoints", s.addr, s.port, s.probe)
		p.Body.Field, p.Body.Value = "hostName", s.addr.String()
		p.Write(w)
		return
	}
	rest.Success(w)
}
