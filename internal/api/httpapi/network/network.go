// Package network answers requests about the kernel's network: addresses, routes, neighbors, VLANs,
// tunnels and ports; and about BGP. Network objects of users are also in the store.
package network

import (
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/netobj"
)

// Statuses reports the attachment of interfaces.
type Statuses interface {
	Get(id status.ID) (status.Status, bool)
}

// Options are the dependencies of API. All but XDP and BGP are required.
type Options struct {
	Objects  *objects.API
	Store    *desired.State
	Statuses Statuses
	Network  *netobj.Network
	Reader   *rest.Reader
	XDP      func() map[string]string // how XDP is attached to interfaces, or why not, by name; nil: no interface
	BGP      func() []bgp.Session     // sessions with all neighbors; nil: BGP is off
}

// API answers requests about the kernel's network.
type API struct {
	Options
	RouteReaders *rest.Shares // requests that read the routes of the kernel
}

// New returns an API.
func New(o Options) *API {
	a := &API{Options: o, RouteReaders: rest.NewShares(RouteReads())}
	if o.BGP != nil {
		a.Objects.CountAll(kinds.BGPNeighborName, a.sessions)
	}
	return a
}
