package model

import (
	"fmt"

	"loxilb/internal/lb"
)

// Stats are the counters of a service.
func (m *Model) Stats(key lb.Key) (lb.ServiceStats, error) {
	svc, ok := m.services[key]
	if !ok {
		return lb.ServiceStats{}, fmt.Errorf("there is no service %s", key)
	}
	s := lb.ServiceStats{EndpointStats: svc.retired, NoEndpoint: svc.noEndpoint}
	for i, e := range svc.endpoints {
		s.EndpointStats = add(s.EndpointStats, e.stats)
		one := e.stats
		if svc.Endpoints[i].Weight > 0 {
			one.Takes, one.Share = true, 1 // no endpoint of the model comes slowly
		}
		s.Endpoints = append(s.Endpoints, one)
	}
	for _, e := range svc.ending {
		s.EndpointStats = add(s.EndpointStats, e.stats)
	}
	return s, nil
}

func add(a, b lb.EndpointStats) lb.EndpointStats {
	sum := func(x, y lb.Traffic) lb.Traffic {
		return lb.Traffic{Packets: x.Packets + y.Packets, Bytes: x.Bytes + y.Bytes}
	}
	return lb.EndpointStats{
		Connections: a.Connections + b.Connections, Active: a.Active + b.Active,
		In: sum(a.In, b.In), Out: sum(a.Out, b.Out),
	}
}
