package httpapi

import (
	"net/netip"
	"slices"

	v1 "loxilb/api/v1"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// observedEndpoints finds the state of probed addresses in the services that they are endpoints of.
// It computes each service once, for one answer.
type observedEndpoints struct {
	api    *servicesAPI
	now    *store.Snapshot
	drains servicestate.Drains
	known  map[lb.Key]observedService
	steps  int // endpoints of services that were looked at
}

type observedService struct {
	service *lb.Service
	states  []servicestate.State
	at      map[netip.Addr][]int // indexes of endpoints: looking at each for each address costs their square
}

func (a *servicesAPI) newObservedEndpoints() *observedEndpoints {
	now := a.Store.Snapshot()
	return &observedEndpoints{api: a, now: now, drains: servicestate.DrainsOf(a.Store.Drains.All(now)), known: map[lb.Key]observedService{}}
}

// answer is a probed address as the API shows it. The contract's answers have no observed state.
func (o *observedEndpoints) answer(h *lb.EndpointHealth) *v1.EndpointProbe {
	e := o.api.codec.endpointAnswer(h)
	if !o.api.codec.compat {
		e.ObservedState = string(o.state(h))
	}
	return e
}

// state is the state of a probed address: what needs attention in any of its services comes first,
// then whether any of them sends it connections. An address of no service has the state of its
// probe.
func (o *observedEndpoints) state(h *lb.EndpointHealth) servicestate.State {
	var found []servicestate.State
	for _, key := range h.Services[:min(len(h.Services), maxUsersShown)] {
		one := o.of(key)
		if one.service == nil {
			continue
		}
		for _, i := range one.at[h.Addr] {
			o.steps++
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
	alone := servicestate.Endpoint{Verdict: lb.Verdict{Probe: h.State, Agent: h.Red}, Weight: 1, Drained: o.drains.Has(netip.AddrPortFrom(h.Addr, h.Probe.Port))}
	return alone.State()
}

func (o *observedEndpoints) of(key lb.Key) observedService {
	one, there := o.known[key]
	if there {
		return one
	}
	if s, _ := o.api.Store.Services.Shared(o.now, key); s != nil {
		stats, _ := o.api.DataPath.ServiceStats(key)
		states := servicestate.Of(servicestate.Gather(s, &stats, o.drains, o.api.Health), servicestate.Applied)
		one = observedService{s, states.Endpoints, make(map[netip.Addr][]int, len(s.Endpoints))}
		for i := range s.Endpoints {
			o.steps++
			one.at[s.Endpoints[i].Addr] = append(one.at[s.Endpoints[i].Addr], i)
		}
	}
	o.known[key] = one
	return one
}
