package datapath

import (
	"fmt"

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

func (d *Datapath) readEndpoint(id uint32) (counters, error) {
	var state bpf.TcEndpointState
	if err := d.obj.EndpointStates.Lookup(id, &state); err != nil {
		return counters{}, fmt.Errorf("read endpoint counters: %w", err)
	}
	if state.Connections == 0 {
		return counters{active: state.Active}, nil // and no traffic: half the cost where most endpoints are idle
	}
	var perCPU []bpf.TcEndpointTraffic
	if err := d.obj.EndpointTraffics.Lookup(id, &perCPU); err != nil {
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
func (d *Datapath) ServiceStats(key bpf.TcServiceKey) (lb.ServiceStats, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	s, ok := d.tables.services[key]
	if !ok {
		return lb.ServiceStats{}, false
	}
	var stats lb.ServiceStats
	sum := s.retired
	own := make([]counters, 0, len(s.order))
	for i, e := range s.order {
		c, err := d.readEndpoint(e.id)
		if err != nil {
			d.log.Error("counters cannot be read", "endpoint", e.at, "err", err)
		}
		sum.add(c)
		if s.of != nil {
			i = int(s.of[i])
		}
		for i >= len(own) {
			own = append(own, counters{})
		}
		own[i].add(c)
	}
	for _, c := range own {
		stats.Endpoints = append(stats.Endpoints, c.stats())
	}
	for _, e := range s.ending {
		if c, err := d.readEndpoint(e.id); err == nil {
			sum.add(c)
		}
	}
	stats.EndpointStats = sum.stats()
	var state bpf.TcServiceState
	if err := d.obj.ServiceStates.Lookup(s.id, &state); err != nil {
		d.log.Error("counters cannot be read", "service", key, "err", err)
	}
	stats.NoEndpoint, stats.Refused = state.NoEndpoint, state.Refused
	return stats, true
}

// Drops are the packets dropped so far, by reason; every reason is there.
func (d *Datapath) Drops() (map[string]uint64, error) {
	out := make(map[string]uint64, len(d.reasons))
	for reason, name := range d.reasons {
		var perCPU []uint64
		if err := d.obj.Drops.Lookup(reason, &perCPU); err != nil {
			return nil, fmt.Errorf("read drops: %w", err)
		}
		for _, n := range perCPU {
			out[name] += n
		}
		if _, ok := out[name]; !ok {
			out[name] = 0
		}
	}
	return out, nil
}

// Occupancy is the number of connections in the table, dead ones not yet swept included, and how many fit.
func (d *Datapath) Occupancy() (active, size uint64) {
	err := d.eachState(func(_ []uint32, rows []bpf.TcEndpointState) {
		for i := range rows {
			active += rows[i].Active
		}
	})
	if err != nil {
		d.log.Error("connections cannot be counted", "err", err)
	}
	return active, uint64(d.obj.Connections.MaxEntries()) / 2
}
