package httpapi

import (
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/lb/netobj"
)

// networkStatuses tells what is attached to interfaces.
type networkStatuses interface {
	Get(id status.ID) (status.Status, bool)
}

// networkOptions are the parts that the area stands on. All but XDP are needed.
type networkOptions struct {
	Objects  *objects.API
	Store    *desired.State
	Statuses networkStatuses
	Network  *netobj.Network
	Reader   *rest.Reader
	XDP      func() map[string]string // how XDP is attached to interfaces, or why not, by name; nil: nowhere
}

// networkAPI answers requests about the kernel's network.
type networkAPI struct {
	networkOptions
	routeReaders *rest.Shares // requests that read the routes of the kernel
}

func newNetworkAPI(o networkOptions) *networkAPI {
	return &networkAPI{networkOptions: o, routeReaders: rest.NewShares(routeReads())}
}
