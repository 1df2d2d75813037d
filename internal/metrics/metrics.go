// Package metrics shows the counters of the load balancer to Prometheus. Nothing is collected between scrapes: each
// reads the store and the data path as they are.
//
// The series of services and endpoints are written as text, without the client library: to make, check and sort each
// takes it fifty times longer (BenchmarkScrape: 16 s against 0.3 s for 10,000 services of 10 endpoints on a busy
// machine), and Prometheus gives a scrape up after 10 s.
package metrics

import (
	"bufio"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/status"
)

const (
	scrapesAtOnce = 4
	scrapeTime    = time.Minute // that a client is given to read an answer
)

// Source is what a scrape reads.
type Source interface {
	// ServiceStats is false for a service that the data path does not have (yet).
	ServiceStats(key lb.Key) (lb.ServiceStats, bool)
	// Jiffy is how long one tick of the clock is by which handshakes are measured.
	Jiffy() time.Duration
	// Drops counts packets dropped, by the name of the reason.
	Drops() map[string]uint64
	// Occupancy is how many connections are tracked, and how many can be.
	Occupancy() (connections, limit uint64)
	// Pressure is how made-up clients are kept out.
	Pressure() lb.Pressure
	// XDP is where the XDP program is attached, how, and how many packets it has forwarded.
	XDP() (interfaces []string, mode string, forwarded uint64)
	NextHopsFull() uint64 // packets for which the table of next hops had no room
	IdleEnds() lb.IdleEnds
	// Counts are the objects by kind and state.
	Counts() map[string]map[status.State]int
	// Endpoints yields all that is probed.
	Endpoints(yield func(*lb.EndpointHealth) bool)
}

// Metrics answers scrapes.
type Metrics struct {
	store    *desired.State
	src      Source
	log      *slog.Logger
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	scrapes  chan struct{} // holds one of each scrape at work
}

// Build describes the daemon in loxilb_build_info.
type Build struct {
	Version string
	Kernel  string // release of the running kernel
	Hook    string // tcx or clsact
}

// New makes the metrics of a daemon.
func New(st *desired.State, src Source, b Build, log *slog.Logger) (*Metrics, error) {
	m := &Metrics{
		store: st, src: src, log: log,
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loxilb_api_requests_total",
			Help: "Requests to the REST API.",
		}, []string{"method", "code"}),
		scrapes: make(chan struct{}, scrapesAtOnce),
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
	return m, nil
}

// ServeHTTP answers a scrape.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case m.scrapes <- struct{}{}:
		defer func() { <-m.scrapes }()
	default:
		http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
		return
	}
	// Writers of tests have no deadline, and need none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTime))
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // fails for an unknown level only
		defer func() { m.note(zip.Close()) }()
		out = zip
	}
	buf := bufio.NewWriterSize(out, 64<<10)
	m.note(m.write(buf, format))
	m.note(buf.Flush())
}

func (m *Metrics) write(w *bufio.Writer, format expfmt.Format) error {
	families, err := m.registry.Gather()
	m.note(err) // one wrong counter must not take the others away
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	if err := writeServices(w, m.store, m.src); err != nil {
		return err
	}
	return writeHealth(w, m.src)
}

// note is for what goes wrong when the answer has begun.
func (m *Metrics) note(err error) {
	if err != nil {
		m.log.Debug("a scrape failed", "error", err)
	}
}

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
