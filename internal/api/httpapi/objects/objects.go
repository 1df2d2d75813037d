// Package objects changes objects of any kind in one transaction, waits until packets see the
// change, and answers requests about several kinds: apply, revisions, statuses, files of
// everything.
package objects

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// Owner is the store's name for this package's changes.
const Owner = "rest"

// DataPath is the part of the data path that changes need.
type DataPath interface {
	// Connections calls yield for each direction of each connection until it returns false.
	Connections(ctx context.Context, yield func(report.Connection) bool) error
	// AcceptedConnections returns the TCP connections that sockets of this machine have accepted
	// from outside.
	AcceptedConnections(at ...netip.Addr) ([]policy.AcceptedConnection, error) // at these addresses; none: at all
}

// Dropper finds connections that firewall rules would end.
type Dropper func([]policy.Rule) func(*report.Connection) bool

// Options are the parts that changes need. All but Dropper, Off and Own are required.
type Options struct {
	Store         *desired.State
	Statuses      Statuses
	DataPath      DataPath
	Network       *netobj.Network
	Reader        *rest.Reader
	CompleteLists rest.CompleteLists
	Log           *slog.Logger
	Dropper       Dropper                   // nil: connections that rules end are unknown
	ApplyWait     time.Duration             // how long a change waits for the data path
	AnyVIP        bool                      // accept VIPs that live hosts have
	Version       string                    // of the daemon, for exported files
	Roles         func() []v1.InstanceState // instances of this node
	Property      func(field string) string // the API's name for a field of a service
	Off           func(kind string) string  // why objects of a registered kind cannot be created or changed; nil or "": they can
	Own           func(netip.Addr) bool     // whether an address is one of this machine; nil: none is known

	// Announcements returns whether the VIPs of a service are announced by BGP; nil: BGP is off.
	Announcements func(*lb.Service) []report.Announcement
}

// API changes objects of any kind, and answers requests about several kinds.
type API struct {
	Options
	kinds      []Kind
	registered map[string]*registered // by name
}

// New returns an API that serves the registered kinds. Register adds kinds with their own
// handlers.
func New(o Options) *API {
	a := &API{Options: o}
	a.registerAll()
	return a
}
