package tables

import (
	"errors"
	"fmt"
	"net/netip"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/lb"
)

// counters are those of one endpoint, or a sum.
type counters struct {
	connections, active uint64
	in, out             lb.Traffic
}

func (c *counters) add(o counters) {
	c.connections += o.connections
	c.active += o.active
	c.in.Packets += o.in.Packets
	c.in.Bytes += o.in.Bytes
	c.out.Packets += o.out.Packets
	c.out.Bytes += o.out.Bytes
}

func (c counters) stats() lb.EndpointStats {
	return lb.EndpointStats{Connections: c.connections, Active: c.active, In: c.in, Out: c.out}
}

func (t *Tables) readEndpoint(id uint32) (counters, error) {
	var state bpf.TcEndpointState
	if err := t.arrays.EndpointStates.Lookup(id, &state); err != nil {
		return counters{}, fmt.Errorf("read endpoint counters: %w", err)
	}
	if state.Connections == 0 {
		return counters{active: state.Active}, nil // and no traffic: half the cost where most endpoints are idle
	}
	var perCPU []bpf.TcEndpointTraffic
	if err := t.arrays.EndpointTraffics.Lookup(id, &perCPU); err != nil {
		return counters{}, fmt.Errorf("read endpoint traffic: %w", err)
	}
	c := counters{connections: state.Connections, active: state.Active}
	for _, t := range perCPU {
		c.in.Packets += t.PacketsIn
		c.in.Bytes += t.BytesIn
		c.out.Packets += t.PacketsOut
		c.out.Bytes += t.BytesOut
	}
	return c, nil
}

// ServiceStats reads a service's counters. False: there is no such service in the data path.
func (t *Tables) ServiceStats(key bpf.TcServiceKey) (lb.ServiceStats, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.services[key]
	if !ok {
		return lb.ServiceStats{}, false
	}
	var stats lb.ServiceStats
	extras := s.extras()
	sum := extras.removed
	own := make([]counters, 0, len(s.order))
	hands := make([]lb.Handshakes, 0, len(s.order))
	takes := make([]bool, len(s.order))
	for i, e := range s.order {
		c, err := t.readEndpoint(e.id)
		h, handErr := t.handshakes.read(e.id)
		if err = errors.Join(err, handErr); err != nil {
			t.settings.Log.Error("counters cannot be read", "endpoint", e.at(), "error", err)
		}
		sum.add(c)
		if extras.parents != nil {
			i = int(extras.parents[i])
		}
		for i >= len(own) {
			own, hands = append(own, counters{}), append(hands, lb.Handshakes{})
		}
		own[i].add(c)
		hands[i].Add(&h)
		takes[i] = takes[i] || e.takes > 0
	}
	for i, c := range own {
		stats.Endpoints = append(stats.Endpoints, c.stats())
		stats.Endpoints[i].Handshakes, stats.Endpoints[i].Takes = hands[i], takes[i]
	}
	for _, e := range s.ending {
		if c, err := t.readEndpoint(e.id); err == nil {
			sum.add(c)
		}
	}
	stats.EndpointStats = sum.stats()
	var state bpf.TcServiceState
	if err := t.maps.ServiceStates.Lookup(s.id, &state); err != nil {
		t.settings.Log.Error("counters cannot be read", "service", key, "error", err)
	}
	stats.NoEndpoint, stats.Refused = state.NoEndpoint, state.Refused
	return stats, true
}

// Active is the number of connections of all endpoints, dead ones not yet swept included.
func (t *Tables) Active() (sum uint64, err error) {
	err = t.eachState(func(_ []uint32, rows []bpf.TcEndpointState) {
		for i := range rows {
			sum += rows[i].Active
		}
	})
	if err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	return sum, nil
}

// Owner is what a listing says of a connection's endpoint.
type Owner struct {
	Endpoint netip.AddrPort
	Weight   uint16
	Service  string // its name, or its key
}

// Owner is the endpoint of a row. False: there is none any more.
func (t *Tables) Owner(id uint32) (Owner, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.endpoint(id)
	if e == nil {
		return Owner{}, false
	}
	o := Owner{Endpoint: e.at(), Weight: e.weight, Service: e.service.name}
	if o.Service == "" {
		o.Service = e.service.key.String()
	}
	return o, true
}
