// Package httpapi is the server of the REST API: it turns requests into transactions on the store, waits until the
// packets see them, and answers with what the store and the data path hold. api/v1 has the types.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
)

// BaseURL is where the contract lives.
const BaseURL = "/netlox/v1"

// owner is the name under which the store files what comes from here.
const owner = "rest"

// DataPath is what the API reads from the data path.
type DataPath interface {
	// ServiceStats is false for a service that the data path does not have (yet).
	ServiceStats(key lb.Key) (lb.ServiceStats, bool)
	// Connections calls yield for each direction of each connection until it returns false.
	Connections(ctx context.Context, yield func(lb.Connection) bool) error
}

// Reconciler tells when a change is in the data path.
type Reconciler interface {
	// Wait blocks until the revision is applied, and returns why it was not.
	Wait(ctx context.Context, revision uint64) error
}

// Options are the parts that the API stands on. All but Observe are needed.
type Options struct {
	Store      *desired.State
	Reconciler Reconciler
	DataPath   DataPath
	Metrics    http.Handler                  // answers GET metrics
	Observe    func(method string, code int) // is told of every answer
	Token      string                        // asked of every request over TCP; empty: none
	Users      Users                         // may use loopback without a token
	Ready      func() (bool, string)         // whether all services were applied once, and how far it is; nil: they were
	Version    v1.Version
	Log        *slog.Logger
	ApplyWait  time.Duration // how long a change waits for the data path; 0: 8 s
}

// API answers requests.
type API struct {
	Options
	mux *http.ServeMux
}

var _ v1.ServerInterface = (*API)(nil)

// New makes an API; Handler and Serve let it answer.
func New(o Options) *API {
	if o.ApplyWait == 0 {
		o.ApplyWait = 8 * time.Second // less than the 10 s that loxicmd waits, so that it learns why
	}
	if o.Observe == nil {
		o.Observe = func(string, int) {}
	}
	a := &API{Options: o, mux: http.NewServeMux()}
	v1.HandlerWithOptions(a, v1.StdHTTPServerOptions{
		BaseURL:          BaseURL,
		BaseRouter:       a.mux,
		ErrorHandlerFunc: func(w http.ResponseWriter, _ *http.Request, err error) { parameterProblem(err).write(w) },
	})
	a.mux.HandleFunc("GET /metrics", a.GetMetrics)
	a.mux.HandleFunc("GET "+healthPath, a.getHealth)
	a.mux.HandleFunc("GET "+readyPath, a.getReady)
	return a
}

// GetVersion answers with the daemon's version.
func (a *API) GetVersion(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.Version) }

// GetMetrics answers in the Prometheus text format.
func (a *API) GetMetrics(w http.ResponseWriter, r *http.Request) { a.Metrics.ServeHTTP(w, r) }
