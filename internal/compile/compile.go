// Package compile turns the desired state of a service, and what health knows of its endpoints, into the tables
// of the data path. It is pure: the same input gives the same tables, which print as text.
package compile

import (
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/lb"
)

// Key is the map key of a service.
func Key(k lb.Key) bpf.TcServiceKey {
	return bpf.TcServiceKey{Vip: bpf.Addr(k.VIP), Port: bpf.Port(k.Port), Protocol: uint8(k.Protocol)}
}

// Service compiles one service. up tells whether an endpoint may take new connections; nil means all may.
// The service must have passed lb.Service.Validate.
func Service(s lb.Service, up func(lb.Endpoint) bool) bpf.ServiceTable {
	t := bpf.ServiceTable{
		Key:       Key(s.Key),
		Name:      s.Name,
		Idle:      s.IdleTimeout,
		Endpoints: make([]bpf.EndpointTable, len(s.Endpoints)),
	}
	weights := make([]uint32, len(s.Endpoints))
	for i, e := range s.Endpoints {
		t.Endpoints[i] = bpf.EndpointTable{Addr: bpf.Addr(e.Addr), Port: bpf.Port(e.Port), Weight: e.Weight}
		switch {
		case e.Weight == 0 || (up != nil && !up(e)):
			// takes no new connection
		case s.Algorithm == lb.Priority:
			weights[i] = uint32(e.Weight)
		default:
			weights[i] = 1
		}
	}
	t.Slots = slots(weights)
	return t
}
