// Package compat holds what exists only because clients of the existing loxilb expect it:
// operations, boot files, words of answers, and arguments that are accepted or refused as they
// expect.
package compat

import (
	"context"
	"log/slog"
	"sync"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// DataPath has the counters for the existing loxilb's clients.
type DataPath interface {
	rest.ServiceCounters
	// Occupancy returns the number of tracked connections and its limit.
	Occupancy() (connections, limit uint64)
	// Drops counts packets dropped, by the name of the reason.
	Drops() map[string]uint64
	// Connections calls yield for each direction of each connection until it returns false.
	Connections(ctx context.Context, yield func(report.Connection) bool) error
	// RuleHits returns the packets decided by a firewall rule, and whether the data path has the
	// rule.
	RuleHits(r *policy.Rule) (report.Traffic, bool)
}

// Health returns the health of endpoints.
type Health interface {
	servicestate.Health
	// EndpointCount counts probed addresses by state.
	EndpointCount() report.HealthCount
}

// Options are the dependencies of the package.
type Options struct {
	Objects       *objects.API
	Store         *desired.State
	DataPath      DataPath
	Health        Health
	Reader        *rest.Reader
	CompleteLists rest.CompleteLists
	Log           *slog.Logger
	// Read has the functions that read objects of boot files, by the path of the operation that
	// creates these objects.
	Read map[string]func(data []byte) (objects.Edit, *rest.Problem)
}

// API answers requests that only clients of the existing loxilb make.
type API struct {
	Options
	meta func() ([]byte, error) // metaOfRequests, made once
}

// New returns an API.
func New(o Options) *API {
	return &API{Options: o, meta: sync.OnceValues(metaOfRequests)}
}
