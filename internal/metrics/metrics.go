// Package metrics shows the counters of the load balancer to Prometheus. Nothing is collected between scrapes: each
// reads the store and the data path as they are.
package metrics

import (
	"log/slog"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// Source is what a scrape reads.
type Source interface {
	// ServiceStats is false for a service that the data path does not have (yet).
	ServiceStats(key lb.Key) (lb.ServiceStats, bool)
	// Drops counts packets dropped, by the name of the reason.
	Drops() map[string]uint64
	// Occupancy is how many connections are tracked, and how many can be.
	Occupancy() (connections, limit uint64)
	// Applied is the last revision that is in the data path whole, and why a later one is not.
	Applied() (revision uint64, err error)
}

// Metrics is a registry and its handler.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	handler  http.Handler
}

// Build describes the daemon in loxilb_build_info.
type Build struct {
	Version string
	Kernel  string // release of the running kernel
	Hook    string // tcx or clsact
}

// New makes the metrics of a daemon.
func New(st *store.Store, src Source, b Build, log *slog.Logger) (*Metrics, error) {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loxilb_api_requests_total",
			Help: "Requests to the REST API.",
		}, []string{"method", "code"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "loxilb_build_info",
		Help:        "Version of the daemon, kernel it runs on and hook its programs are attached to.",
		ConstLabels: prometheus.Labels{"version": b.Version, "kernel": b.Kernel, "hook": b.Hook},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{
		m.requests, build, newCollector(st, src),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// One wrong counter must not take the others away.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
	return m, nil
}

// ServeHTTP answers a scrape.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Observe counts a request to the API. Methods that HTTP does not have are one: a label must not grow by what
// clients invent.
func (m *Metrics) Observe(method string, code int) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(method, strconv.Itoa(code)).Inc()
}
