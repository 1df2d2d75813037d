package model

import (
	"fmt"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Stats returns the counters of a service.
func (m *Model) Stats(key lb.Key) (report.ServiceStats, error) {
	svc, ok := m.services[key]
	if !ok {
		return report.ServiceStats{}, fmt.Errorf("unknown service %s", key)
	}
	s := report.ServiceStats{EndpointStats: svc.retired}
	for i, e := range svc.endpoints {
		one := m.statsOf(e)
		s.EndpointStats = add(s.EndpointStats, one)
		if svc.Endpoints[i].Weight > 0 {
			one.Available, one.Share = true, 1 // the model has no slow start
		}
		s.Endpoints = append(s.Endpoints, one)
	}
	for _, e := range svc.ending {
		s.EndpointStats = add(s.EndpointStats, m.statsOf(e))
	}
	s.Refusals = svc.refusals
	return s, nil
}

func add(a, b report.EndpointStats) report.EndpointStats {
	sum := func(x, y report.Traffic) report.Traffic {
		return report.Traffic{Packets: x.Packets + y.Packets, Bytes: x.Bytes + y.Bytes}
	}
	return report.EndpointStats{
		Connections: a.Connections + b.Connections, Active: a.Active + b.Active, Inactive: a.Inactive + b.Inactive,
		In: sum(a.In, b.In), Out: sum(a.Out, b.Out),
	}
}

// statsOf returns the counters of an endpoint, with the connections that it has in the table.
func (m *Model) statsOf(e *endpoint) report.EndpointStats {
	s := e.stats
	for _, row := range m.table {
		switch {
		case row.dir != fromClient || row.conn.endpoint != e:
		case row.conn.active():
			s.Active++
		default:
			s.Inactive++
		}
	}
	return s
}

// active reports whether a connection counts as open. If the endpoint's answers bypass the load
// balancer, the client's FIN closes the connection.
func (c *connection) active() bool {
	return !c.closed() && !(c.oneWay && c.sides[fromClient].fin)
}
