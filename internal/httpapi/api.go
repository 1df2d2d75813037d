// Package httpapi is the server of the REST API: it turns requests into transactions on the store, waits until the
// packets see them, and answers with what the store and the data path hold. api/v1 has the types.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/access"
	"loxilb/internal/desired"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/logring"
	"loxilb/internal/netobj"
)

// BaseURL is where the contract lives.
const BaseURL = "/netlox/v1"

// owner is the name under which the store files what comes from here.
const owner = "rest"

// DataPath is what the API reads from the data path.
type DataPath interface {
	// ServiceStats is false for a service that the data path does not have (yet).
	ServiceStats(key lb.Key) (lb.ServiceStats, bool)
	// Occupancy is how many connections are tracked, and how many can be.
	Occupancy() (connections, limit uint64)
	// Drops counts packets dropped, by the name of the reason.
	Drops() map[string]uint64
	// Connections calls yield for each direction of each connection until it returns false.
	Connections(ctx context.Context, yield func(lb.Connection) bool) error
	// PolicerStats is what a policer has said, and in how many places it is.
	PolicerStats(name string) lb.PolicerStats
	// MirrorStats is what a mirror has copied, and in how many places it is.
	MirrorStats(name string) lb.MirrorStats
	// EndConnections ends those that match, rate a second, from a place on. Some may be left when ctx ends.
	EndConnections(ctx context.Context, from, rate int, matches func(*lb.Connection) bool) (lb.Ended, error)
	// Sessions are TCP connections that sockets of this machine have accepted from outside.
	Sessions() ([]lb.Session, error)
	// RuleHits is what a firewall rule has decided about. false: the data path does not have it (yet).
	RuleHits(r *lb.Rule) (lb.Traffic, bool)
	// WatchConnections calls yield, often, with what has become of connections, and what was not told so far, until ctx ends or yield
	// returns false. rate: so many events a second are wanted.
	WatchConnections(ctx context.Context, rate int, yield func([]lb.ConnectionEvent, lb.Untold) bool) error
}

// Health tells how endpoints are.
type Health interface {
	// EndpointState is false for an endpoint whose health the service does not heed.
	EndpointState(s *lb.Service, e lb.Endpoint) (lb.HealthState, bool)
	// Endpoints yields all that is probed, by name.
	Endpoints(yield func(*lb.EndpointHealth) bool)
	// SetHostState takes out what is probed at an address, a port (0: any), by a type (lb.ProbeAuto: any), or leaves it to its probes. It
	// returns how many that are.
	SetHostState(a netip.Addr, port uint16, t lb.ProbeType, out bool) (found int)
}

// Options are the parts that the API stands on. All but Observe, Events, Lines and Ready are needed.
type Options struct {
	Store      *desired.State
	Statuses   Statuses
	DataPath   DataPath
	Health     Health
	Network    *netobj.Network
	Events     *event.Hub                    // nil: one that nothing happens in
	Metrics    http.Handler                  // answers GET metrics
	Observe    func(method string, code int) // is told of every answer
	Token      string                        // asked of every request over TCP; empty: none
	Users      Users                         // may use loopback without a token
	AskTokens  bool                          // of every request over TCP: Token, or one of Access
	Ready      func() (bool, string)         // whether the start is over, and what GET readyz answers while it is not; nil: it is
	Version    v1.Version
	Log        *slog.Logger
	LogLevel   LogLevel
	Access     *access.Users // by name and password
	Audit      *access.Audit // nil: no account is kept
	Lines      *logring.Ring // of the log; nil: none are kept
	MetricsOff bool          // until a request switches them on
	ProbeFiles string        // the directory that files of probes are below; empty: any
	ApplyWait  time.Duration // how long a change waits for the data path; 0: 8 s
	BodyWait   time.Duration // how long a request with a body waits for its turn; 0: 10 s
}

// API answers requests.
type API struct {
	Options
	mux     *http.ServeMux
	codec   *codec
	kinds   []objectKind
	stall   time.Duration // how long a stream of events may be stuck
	streams chan struct{} // holds a value for each stream of events
	bodies  chan struct{} // holds a value for each body that is read
	closing context.Context
	close   context.CancelFunc // ends what does not end by itself

	logins     *access.Limiter
	origins    origins
	metricsOff atomic.Bool

	auditFailed atomic.Int64 // the minute of which the log says so
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
	if o.BodyWait == 0 {
		o.BodyWait = bodyWait
	}
	if o.Events == nil {
		o.Events = event.NewHub()
	}
	if o.Lines == nil {
		o.Lines = logring.New()
	}
	a := &API{
		stall: stallLimit, logins: access.NewLimiter(),
		Options: o, mux: http.NewServeMux(), codec: newCodec(),
		streams: make(chan struct{}, maxStreams), bodies: make(chan struct{}, maxBodies),
	}
	a.kinds = a.objectKinds()
	a.metricsOff.Store(o.MetricsOff)
	a.closing, a.close = context.WithCancel(context.Background())
	v1.HandlerWithOptions(a, v1.StdHTTPServerOptions{
		BaseURL:          BaseURL,
		BaseRouter:       a.mux,
		ErrorHandlerFunc: func(w http.ResponseWriter, _ *http.Request, err error) { parameterProblem(err).write(w) },
	})
	registerNotBuilt(a.mux)
	a.mux.HandleFunc("GET /metrics", a.GetMetrics)
	a.mux.HandleFunc("GET "+healthPath, a.getHealth)
	a.mux.HandleFunc("GET "+readyPath, a.getReady)
	return a
}

// GetVersion answers with the daemon's version.
func (a *API) GetVersion(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.Version) }
