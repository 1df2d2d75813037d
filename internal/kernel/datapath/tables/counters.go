package tables

import (
	"fmt"
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// counters are the counters of one endpoint, or a sum.
type counters struct {
	traffic
	connections uint64
	live
	shakes  report.Handshakes
	refused refused
}

// refused counts packets that were refused because of an endpoint. The counts of removed endpoints
// are dropped: their services have counted the same packets.
type refused struct{ ports, tuple uint64 }

func refusedOf(s *bpf.TcEndpointState) refused { return refused{s.SnatPortsExhausted, s.TupleInUse} }

func (r refused) refusals() (out report.Refusals) {
	out[report.PortsExhausted], out[report.TupleInUse] = r.ports, r.tuple
	return out
}

// live counts connections that are in the table now.
type live struct {
	active   uint64 // open
	inactive uint64 // closed
}

// liveOf splits an endpoint's tracked connections into active and inactive ones. The two counters
// are not read at the same instant, so each is bounded by the other.
func liveOf(s *bpf.TcEndpointState) live {
	active := min(uint64(max(0, s.Active)), s.Tracked)
	return live{active: active, inactive: s.Tracked - active}
}

type traffic struct{ in, out report.Traffic }

func (c *counters) add(o counters) {
	c.connections += o.connections
	c.active += o.active
	c.inactive += o.inactive
	c.in.Packets += o.in.Packets
	c.in.Bytes += o.in.Bytes
	c.out.Packets += o.out.Packets
	c.out.Bytes += o.out.Bytes
	c.shakes.Add(&o.shakes)
	c.refused.ports += o.refused.ports
	c.refused.tuple += o.refused.tuple
}

func (c *counters) stats() report.EndpointStats {
	return report.EndpointStats{Connections: c.connections, Active: c.active, Inactive: c.inactive, In: c.in, Out: c.out, Handshakes: c.shakes, Refusals: c.refused.refusals()}
}

func (t *Tables) readEndpoint(id uint32) (counters, error) {
	var state bpf.TcEndpointState
	if err := t.arrays.EndpointStates.Lookup(id, &state); err != nil {
		return counters{}, fmt.Errorf("read endpoint counters: %w", err)
	}
	c := counters{connections: state.Connections, live: liveOf(&state), refused: refusedOf(&state)}
	var steps bpf.TcHandshakeProgress
	var err error
	counted := state.Connections != 0 || t.hasCopies.Load() // otherwise nothing else is: a third of the cost where most endpoints are idle
	if counted {
		if steps, err = t.handshakes.readSteps(id, t.handshakes.stepRows()); err != nil {
			return c, err
		}
	}
	if c.shakes, err = t.handshakes.read(id, &steps); err != nil || !counted {
		return c, err
	}
	var perCPU []bpf.TcEndpointTraffic
	if err := t.arrays.EndpointTraffics.Lookup(id, &perCPU); err != nil {
		return c, fmt.Errorf("read endpoint traffic: %w", err)
	}
	c.addCPUs(perCPU)
	return c, nil
}

func (c *traffic) addCPUs(perCPU []bpf.TcEndpointTraffic) {
	for i := range perCPU {
		c.in.Packets += perCPU[i].PacketsIn
		c.in.Bytes += perCPU[i].BytesIn
		c.out.Packets += perCPU[i].PacketsOut
		c.out.Bytes += perCPU[i].BytesOut
	}
}

// ServiceStats reads a service's counters. It returns false if the data path does not have the
// service.
func (t *Tables) ServiceStats(key bpf.TcServiceKey) (report.ServiceStats, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.services[key]
	if !ok {
		return report.ServiceStats{}, false
	}
	return t.serviceStats(s, t.readEndpoint), true
}

// serviceStats adds up the counters of the service's endpoints.
func (t *Tables) serviceStats(s *service, read func(id uint32) (counters, error)) (stats report.ServiceStats) {
	extras := s.extras()
	sum := extras.removed
	own := make([]counters, 0, len(s.order))
	shares := make([]weightShare, len(s.order))
	for i, e := range s.order {
		c, err := read(e.id)
		if err != nil {
			t.settings.Log.Error("counters cannot be read", "endpoint", e.at(), "error", err)
		}
		sum.add(c)
		if extras.parents != nil {
			i = int(extras.parents[i])
		}
		for i >= len(own) {
			own = append(own, counters{})
		}
		own[i].add(c)
		shares[i].add(e, t.sourceOf(e))
	}
	stats.Endpoints = make([]report.EndpointStats, len(own))
	for i := range own {
		stats.Endpoints[i] = own[i].stats()
		stats.Endpoints[i].Available, stats.Endpoints[i].Share = shares[i].currentWeight > 0, shares[i].fraction(extras.tenths)
		stats.Endpoints[i].Source = shares[i].source
	}
	for _, e := range s.ending {
		if c, err := read(e.id); err == nil {
			sum.add(c)
		}
	}
	stats.EndpointStats = sum.stats()
	var state bpf.TcServiceState
	if err := t.maps.ServiceStates.Lookup(s.id, &state); err != nil {
		t.settings.Log.Error("counters cannot be read", "service", s.key, "error", err)
	}
	stats.Refusals = state.Refused
	return stats
}

// sourceOf returns an endpoint's source as in report.EndpointStats.
func (t *Tables) sourceOf(e *endpoint) string {
	switch {
	case !e.has(endpointSNAT) || t.isLocal(e):
		return ""
	case e.source == (bpf.TcIpAddr{}):
		return "none"
	}
	return e.source.Netip().String()
}

// weightShare sums up the current and the full weights of an endpoint's rows, and has their source.
type weightShare struct {
	currentWeight, weight uint64
	rows                  int
	source                string
}

func (s *weightShare) add(e *endpoint, source string) {
	if s.rows++; s.rows == 1 {
		s.source = source
	} else if s.source != source {
		s.source = "several"
	}
	s.currentWeight += uint64(e.currentWeight)
	s.weight += uint64(e.weight)
}

// fraction returns the current share of the weight. It is 1 for rows of an earlier process until
// the service is applied.
func (s *weightShare) fraction(tenths bool) float64 {
	switch {
	case s.currentWeight == 0:
		return 0
	case s.weight == 0:
		return 1
	case tenths:
		return float64(s.currentWeight) / float64(10*s.weight)
	}
	return float64(s.currentWeight) / float64(s.weight)
}

// Tracked returns the number of connections of all endpoints, including closed ones that are not
// swept yet.
func (t *Tables) Tracked() (sum uint64, err error) {
	err = t.eachState(func(_ []uint32, rows []bpf.TcEndpointState) {
		for i := range rows {
			sum += rows[i].Tracked
		}
	})
	if err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	return sum, nil
}

// EndpointRows returns the number of endpoints with a row, including those that are ending.
func (t *Tables) EndpointRows() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return uint64(t.endpointIDs.Taken())
}

// Owner describes a connection's endpoint for listings.
type Owner struct {
	Endpoint netip.AddrPort
	Weight   uint16
	Service  string // its name, or its key
}

// Owner returns the endpoint of a row. It returns false if the row no longer has one.
func (t *Tables) Owner(id uint32) (Owner, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.endpoint(id)
	if e == nil {
		return Owner{}, false
	}
	return Owner{Endpoint: e.at(), Weight: e.weight, Service: e.service.label()}, true
}

// EndpointSet has a bit for each endpoint, by id.
type EndpointSet [MaxEndpoints / 64]uint64

// fewChosen is the number of endpoints up to which each is checked individually for connections.
const fewChosen = 1024

// WithConnections returns the chosen endpoints that may have connections, or had some; nil: none.
func (t *Tables) WithConnections(chosen func(*Owner) bool) (set *EndpointSet, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var ids []uint32
	var of *service
	var o Owner
	for id, e := range t.endpoints {
		if e == nil {
			continue
		}
		if e.service != of {
			of, o.Service = e.service, e.service.label()
		}
		if o.Endpoint, o.Weight = e.at(), e.weight; chosen(&o) {
			ids = append(ids, uint32(id))
		}
	}
	for _, id := range ids {
		if len(ids) <= fewChosen {
			var state bpf.TcEndpointState
			if err := t.arrays.EndpointStates.Lookup(id, &state); err != nil {
				return nil, fmt.Errorf("read endpoint counters: %w", err)
			}
			if state.Connections == 0 && state.Tracked == 0 { // copies are tracked only
				continue
			}
		}
		if set == nil {
			set = &EndpointSet{}
		}
		set[id/64] |= 1 << (id % 64)
	}
	return set, nil
}

// label returns the service's name, or its key.
func (s *service) label() string {
	if s.name != "" {
		return s.name
	}
	return s.key.String()
}

// ServiceOf returns the key of the service with an id, and whether there is one.
func (t *Tables) ServiceOf(id uint32) (bpf.TcServiceKey, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key, s := range t.services {
		if s.id == id {
			return key, true
		}
	}
	return bpf.TcServiceKey{}, false
}

// HasProtocol reports whether a service has this protocol.
func (t *Tables) HasProtocol(protocol uint8) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key := range t.services {
		if key.Protocol == protocol {
			return true
		}
	}
	return false
}

// HasAlgorithm reports whether a service has this algorithm.
func (t *Tables) HasAlgorithm(algorithm uint8) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.services {
		if s.row.Algorithm == algorithm {
			return true
		}
	}
	return false
}

// VIPsOf returns the VIPs, also secondary ones, of services with this algorithm.
func (t *Tables) VIPsOf(algorithm uint8) (list []bpf.TcIpAddr) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key, s := range t.services {
		if s.row.Algorithm == algorithm && !s.deleted {
			list = append(append(list, key.Vip), s.secondaryVIPs()...)
		}
	}
	return list
}

// HasFlag reports whether a service has this flag.
func (t *Tables) HasFlag(flag uint16) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.services {
		if s.row.Flags&flag != 0 {
			return true
		}
	}
	return false
}

// WithRowsLocked calls f while no rows are made or released. f must not use the tables.
func (t *Tables) WithRowsLocked(f func() error) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return f()
}
