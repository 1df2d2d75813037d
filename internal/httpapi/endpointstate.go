package httpapi

import (
	"net/netip"
	"slices"

	"loxilb/internal/lb"
	"loxilb/internal/servicestate"
	"loxilb/internal/store"
)

// observedEndpoints finds the state of probed addresses in the services that they are endpoints of.
// It computes each service once, for one answer.
type observedEndpoints struct {
	api    *API
	now    *store.Snapshot
	drains servicestate.Drains
	known  map[lb.Key]observedService
}

type observedService struct {
	service *lb.Service
	states  []servicestate.State
}

func (a *API) newObservedEndpoints() *observedEndpoints {
	now := a.Store.Snapshot()
	return &observedEndpoints{a, now, servicestate.DrainsOf(a.Store.Drains.All(now)), map[lb.Key]observedService{}}
}

// state is the state of a probed address: what needs attention in any of its services comes first,
// then whether any of them sends it connections. An address of no service has the state of its probe.
func (o *observedEndpoints) state(h *lb.EndpointHealth) servicestate.State {
	var found []servicestate.State
	for _, key := range h.Services[:min(len(h.Services), maxUsersShown)] {
		one := o.of(key)
		if one.service == nil {
			continue
		}
		for i, e := range one.service.Endpoints {
			if e.Addr == h.Addr && (h.Probe.Port == 0 || h.Probe.Port == e.Port || h.Probe.Port == one.service.ProbeOf(e).Port) {
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
		one = observedService{s, states.Endpoints}
	}
	o.known[key] = one
	return one
}
