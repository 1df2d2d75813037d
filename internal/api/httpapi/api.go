// Package httpapi is the server of the REST API. It turns requests into transactions on the store,
// waits until the data path has applied them, and answers from the store and the data path. api/v1
// has the types.
package httpapi

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/api/httpapi/network"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/observation"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/services"
	"loxilb/internal/api/httpapi/traffic"
	"loxilb/internal/api/httpapi/users"
	"loxilb/internal/api/page"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/store"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/diagnose/verify"
	"loxilb/internal/event"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/report"
	"loxilb/internal/telemetry/logs"
)

// BaseURL is the path prefix of the API, and of the existing loxilb's.
const BaseURL = rest.BaseURL

// DataPath is the part of the data path that all areas read.
type DataPath interface {
	objects.DataPath
	services.DataPath
	traffic.DataPath
	observation.DataPath
	compat.DataPath
}

// Health is the part of the endpoints' health that all areas read.
type Health interface {
	services.Health
	observation.Health
	compat.Health
}

// Loopback selects the local users who may use the API over TCP on loopback.
type Loopback = users.Loopback

// Options are the dependencies of the API. All but Explainer, Dropper, Observe, Events, Lines and
// Ready are needed.
type Options struct {
	Store         *desired.State
	Statuses      objects.Statuses
	DataPath      DataPath
	Health        Health
	Network       *netobj.Network
	Sampler       observation.Sampler
	Explainer     observation.Explainer         // explains the handling of packets; nil: unavailable
	Interfaces    func() map[int]string         // names, by index
	XDP           func() map[string]string      // how XDP is attached to interfaces, or why not, by name; nil: no interface
	Dropper       objects.Dropper               // nil: connections that rules end are unknown
	Events        *event.Hub                    // nil: no events
	Metrics       http.Handler                  // answers GET metrics
	Observe       func(method string, code int) // called for every answer
	Token         string                        // required for every request over TCP; empty: none
	Users         users.Loopback                // may use loopback without a token
	Hosts         []string                      // names by which requests without a token may come, in lower case
	RequireTokens bool                          // require Token, or a token of Access, for every request over TCP
	Ready         func() (bool, string)         // whether the start is complete, or else the answer of GET readyz; nil: it is
	Version       v1.Version
	Log           *slog.Logger
	LogLevel      observation.LogLevel
	Access        *access.Users          // by name and password
	Audit         *access.Audit          // nil: no audit log
	Lines         *logs.Ring             // recent log lines; nil: none are kept
	MetricsOff    bool                   // metrics are off until a request enables them
	Compat        bool                   // ignore unknown properties, like the existing loxilb
	NoPage        bool                   // do not serve the web page at /
	ProbeFiles    string                 // directory of probe files; empty: any directory
	Verifier      *verify.Verifier       // compares desired state with the kernel
	Doctor        func() *doctor.Machine // what doctor checks; nil: the machine, without data of the daemon
	BGP           func() []bgp.Session   // sessions with all BGP neighbors; nil: objects of BGP cannot be created or changed
	ApplyWait     time.Duration          // how long a change waits for the data path; 0: 8 s
	BodyWait      time.Duration          // how long a request with a body waits for its turn; 0: 10 s

	// Announcements returns whether the VIPs of a service are announced by BGP; nil: BGP is
	// off.
	Announcements func(*lb.Service) []report.Announcement

	// Own reports whether an address is one of this machine; nil: none is known.
	Own func(netip.Addr) bool

	// AllAnnouncements returns the decisions about all VIPs, in order; nil: BGP is off.
	AllAnnouncements func() []report.Announcement

	// Drain returns the progress of this node's drain; nil: unknown.
	Drain func() report.DrainProgress

	// Cluster returns the state of exchanging connections with other nodes; nil: no cluster.
	Cluster func() *report.Cluster

	// Nodes returns all known nodes, including this one; nil: there is only this one.
	Nodes func() []report.Node
}

// API embeds its areas by these names.
type (
	// Objects changes objects of any kind.
	Objects = objects.API
	// Services changes services, endpoints, drains and roles.
	Services = services.API
	// Network changes the kernel's network, and the BGP speaker with its neighbors and policies.
	Network = network.API
	// Traffic changes rules, policers and mirrors, and lists connections.
	Traffic = traffic.API
	// Users manages users and their rights.
	Users = users.API
	// Observation reports the state of the daemon and its machine.
	Observation = observation.API
	// Compat serves clients of the existing loxilb only.
	Compat = compat.API
)

// API answers requests.
type API struct {
	o Options
	*Objects
	*Services
	*Network
	*Traffic
	*Users
	*Observation
	*Compat
	mux     *http.ServeMux
	streams *rest.Streams
	unread  rest.UnreadAnswers
}

var _ v1.ServerInterface = (*API)(nil)

// withDefaults sets defaults for unset options.
func (o *Options) withDefaults() {
	if o.ApplyWait == 0 {
		o.ApplyWait = 8 * time.Second // less than the 10 s that loxicmd waits, so that it learns why
	}
	if o.Observe == nil {
		o.Observe = func(string, int) {}
	}
	if o.Events == nil {
		o.Events = event.NewHub()
	}
	if o.Lines == nil {
		o.Lines = logs.NewRing()
	}
	if o.Doctor == nil {
		o.Doctor = func() *doctor.Machine { return doctor.Here(doctor.Facts{}) }
	}
	o.Verifier = cmp.Or(o.Verifier, verify.New())
}

// off returns why objects of a kind cannot be created or changed, or "" if they can.
func (o *Options) off(kind string) string {
	switch kind {
	case kinds.BGPSpeakerName, kinds.BGPNeighborName, kinds.BGPSetName, kinds.BGPPolicyName, kinds.BGPApplicationName:
		if o.BGP == nil {
			return "BGP is off: start loxilb with --bgp"
		}
	case kinds.ClusterNodeName:
		if o.Cluster != nil && o.Cluster() == nil {
			return "this node exchanges no connections: start loxilb with --cluster-key, or --cluster-ca"
		}
	}
	return ""
}

// New returns an API. Requests are answered by Handler or Listen.
func New(o Options) *API {
	o.withDefaults()
	a := &API{o: o, mux: http.NewServeMux(), streams: rest.NewStreams(o.Access), unread: rest.NewUnread()}
	var unknown *slog.Logger
	if o.Compat {
		unknown = o.Log
	}
	reader, lists := rest.NewReader(o.BodyWait, unknown), rest.NewCompleteLists()
	a.Objects = objects.New(objects.Options{
		Store: o.Store, Statuses: o.Statuses, DataPath: o.DataPath, Network: o.Network, Reader: reader, CompleteLists: lists, Log: o.Log,
		Announcements: o.Announcements,
		Dropper:       o.Dropper, ApplyWait: o.ApplyWait, AnyVIP: o.Compat, Version: o.Version.Version,
		Property: func(field string) string { return services.PropertyOf(field, -1) },
		Roles:    func() []v1.InstanceState { return a.InstanceStates() },
		Off:      o.off,
		Own:      o.Own,
	})
	a.Services = services.New(services.Options{
		Objects: a.Objects, Store: o.Store, DataPath: o.DataPath, Health: o.Health, Loads: o.Sampler, Reader: reader, ProbeFiles: o.ProbeFiles, Compat: o.Compat,
	})
	a.Network = network.New(network.Options{
		Objects: a.Objects, Store: o.Store, Statuses: o.Statuses, Network: o.Network, Reader: reader, XDP: o.XDP, BGP: o.BGP,
	})
	a.Traffic = traffic.New(traffic.Options{
		Objects: a.Objects, Store: o.Store, DataPath: o.DataPath, Interfaces: o.Interfaces, Reader: reader, Streams: a.streams, Log: o.Log,
	})
	a.Register(slices.Concat(a.Services.ObjectKinds(), a.Traffic.ObjectKinds(), a.Network.ObjectKinds())...)
	a.Users = users.New(users.Options{
		Access: o.Access, Audit: o.Audit, Loopback: o.Users, Token: o.Token, RequireTokens: o.RequireTokens, Hosts: o.Hosts,
		Open: []string{observation.HealthPath, observation.ReadyPath}, Pattern: a.pattern, Reader: reader, Log: o.Log,
	})
	a.Observation = observation.New(observation.Options{
		Store: o.Store, DataPath: o.DataPath, Health: o.Health, Sampler: o.Sampler,
		Sync: func(now *store.Snapshot, key lb.Key) servicestate.Sync {
			return servicestate.SyncOf(a.AppliedStatus(now, key))
		},
		Explainer: o.Explainer, Verifier: o.Verifier, Doctor: o.Doctor,
		Events: o.Events, Metrics: o.Metrics, MetricsOff: o.MetricsOff, Ready: o.Ready, Version: o.Version, Roles: a.InstanceStates, Drain: o.Drain, Cluster: o.Cluster, Nodes: o.Nodes, Announcements: o.AllAnnouncements, Sessions: o.BGP,
		Log: o.Log, LogLevel: o.LogLevel, Lines: o.Lines, Reader: reader, Streams: a.streams,
	})
	a.Compat = compat.New(compat.Options{
		Objects: a.Objects, Store: o.Store, DataPath: o.DataPath, Health: o.Health, Reader: reader, CompleteLists: lists, Log: o.Log,
		Read: map[string]func([]byte) (objects.Edit, *rest.Problem){
			"/config/loadbalancer": a.ReadBootService, "/config/endpoint": a.ReadBootEndpoint, "/config/firewall": a.ReadBootRule,
			"/config/bfd": a.ReadBoot(kinds.BFDName), "/config/session": a.ReadBoot(kinds.SessionName), "/config/sessionulcl": a.ReadBoot(kinds.SessionFlowName),
		},
	})
	a.handleOperations()
	return a
}

// handleOperations registers the handler of each operation.
func (a *API) handleOperations() {
	v1.HandlerWithOptions(a, v1.StdHTTPServerOptions{
		BaseURL:          BaseURL,
		BaseRouter:       a.mux,
		ErrorHandlerFunc: func(w http.ResponseWriter, _ *http.Request, err error) { rest.ParameterProblem(err).Write(w) },
	})
	a.HandleRegistered(a.mux)
	compat.RegisterNotBuilt(a.mux)
	if !a.o.NoPage {
		page.New().Register(a.mux)
	}
	a.mux.HandleFunc("GET /metrics", a.GetMetrics)
	a.mux.HandleFunc("GET "+observation.HealthPath, a.GetHealth)
	a.mux.HandleFunc("GET "+observation.ReadyPath, a.GetReady)
}

// pattern returns the pattern of a request's operation, or "" if there is none.
func (a *API) pattern(r *http.Request) string {
	_, pattern := a.mux.Handler(r)
	return pattern
}

// GetVersion replies with the daemon's version.
func (a *API) GetVersion(w http.ResponseWriter, _ *http.Request) { rest.JSON(w, a.o.Version) }
