// Package observation answers requests about the state of the daemon and its machine: events, logs,
// rates, drops, checks, explanations.
package observation

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/diagnose/verify"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/report"
	"loxilb/internal/telemetry/logs"
)

// DataPath returns counters.
type DataPath interface {
	rest.ServiceCounters
	// Drops counts packets dropped, by the name of the reason.
	Drops() map[string]uint64
}

// Health returns the health of endpoints.
type Health interface {
	servicestate.Health
	// EndpointCount counts probed addresses by state.
	EndpointCount() report.HealthCount
}

// Options are the dependencies of API. All but Explainer and Ready are required.
type Options struct {
	Store    *desired.State
	DataPath DataPath
	Health   Health
	Sampler  Sampler
	// Sync returns the data path's progress with a service of a snapshot.
	Sync       func(now *store.Snapshot, key lb.Key) servicestate.Sync
	Explainer  Explainer              // explains the handling of packets; nil: unavailable
	Verifier   *verify.Verifier       // compares desired state with the kernel
	Doctor     func() *doctor.Machine // what doctor checks
	Events     *event.Hub
	Metrics    http.Handler // answers GET metrics
	MetricsOff bool         // metrics are off until a request enables them
	Ready      func() (bool, string)
	Version    v1.Version
	Roles      func() []v1.InstanceState   // of this node
	Drain      func() report.DrainProgress // progress of this node's drain; nil: unknown
	Cluster    func() *report.Cluster      // nil, or nothing returned: there is none
	Nodes      func() []report.Node        // with this one; nil, or none returned: there is only this one

	Announcements func() []report.Announcement // of all VIPs, in order; nil: BGP is off
	Sessions      func() []bgp.Session         // with BGP neighbors; needed with Announcements

	Log      *slog.Logger
	LogLevel LogLevel
	Lines    *logs.Ring // of the log
	Reader   *rest.Reader
	Streams  *rest.Streams
}

// API answers requests about the state of the daemon and its machine.
type API struct {
	Options
	metricsOff   atomic.Bool
	started      time.Time
	largeAnswers chan struct{} // holds a value for each large answer with rates
	examining    chan struct{} // capacity 1: holds a value while the machine is examined
}

// New returns an API.
func New(o Options) *API {
	a := &API{Options: o, started: time.Now(), largeAnswers: make(chan struct{}, maxLargeAnswers), examining: make(chan struct{}, 1)}
	a.metricsOff.Store(o.MetricsOff)
	return a
}
