// Package services answers requests about services, their endpoints, drains and the roles of this
// node.
package services

import (
	"context"
	"net/netip"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// DataPath is the part of the data path that this package reads.
type DataPath interface {
	// ServiceStats is false for a service that the data path does not have (yet).
	ServiceStats(key lb.Key) (report.ServiceStats, bool)
	rest.ServiceCounters
	// ConnectionsFrom calls yield for each direction of each selected connection, and perhaps of
	// others, starting from a position. It returns the position where yield returned false, which
	// is the next to yield; 0: the end.
	ConnectionsFrom(ctx context.Context, from int, sought report.ConnectionQuery, yield func(report.Connection) bool) (next int, err error)
	// OwnSockets returns the number of flows of this machine's own sockets by endpoint, as the
	// services have them: they are not in the connection table.
	OwnSockets() (map[netip.AddrPort]uint64, error)
}

// Health returns the health of endpoints.
type Health interface {
	servicestate.Health
	// EndpointHealth returns the evidence; false: the service does not consider it, or there is
	// none.
	EndpointHealth(s *lb.Service, e lb.Endpoint) (report.EndpointHealth, bool)
	// EndpointsWhere yields the selected probed addresses, by name.
	EndpointsWhere(chosen func(name string, at netip.Addr) bool, yield func(*report.EndpointHealth) bool)
	// EndpointsNamed yields the probed addresses with these names or addresses, by name.
	EndpointsNamed(names []string, yield func(*report.EndpointHealth) bool)
	// SetHostState takes probed endpoints out of service, or returns them to their probes. It
	// selects by address, port (0: any) and probe type (lb.ProbeAuto: any), and returns their
	// number.
	SetHostState(a netip.Addr, port uint16, t lb.ProbeType, out bool) (found int)
}

// Options are the dependencies of API.
type Options struct {
	Objects    *objects.API
	Store      *desired.State
	DataPath   DataPath
	Health     Health
	Loads      Loads
	Reader     *rest.Reader
	ProbeFiles string // the directory that files of probes are below; empty: any
	Compat     bool   // answer as the existing loxilb does
}

// API answers requests about services, endpoints, drains and roles.
type API struct {
	Options
	codec *codec
}

// New returns an API.
func New(o Options) *API {
	return &API{Options: o, codec: newCodec(o.Compat)}
}

// ObjectKinds returns the kinds of object of this package.
func (a *API) ObjectKinds() []objects.Kind {
	return []objects.Kind{
		a.serviceObjects(),
		objects.KindOf(kinds.Endpoint().Words, a.Store.Endpoints, objects.Plain(a.readEndpoint), a.codec.showEndpoint, endpointProblem),
		a.drainObjects(),
	}
}
