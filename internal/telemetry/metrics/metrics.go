// Package metrics exports the counters of the load balancer to Prometheus and OpenTelemetry. Each
// scrape reads the store and the data path; nothing is collected in between.
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
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/report"
)

const (
	scrapesAtOnce = 4
	scrapeTime    = time.Minute // that a client is given to read an answer
)

// Options configure the metrics.
type Options struct {
	Build     Build
	Endpoints bool        // series of each endpoint, too
	Compat    bool        // the names of the existing loxilb, too
	Ready     func() bool // whether packets are balanced; nil: they are
	Peaks     Peaks       // nil: unknown
	// Certificates returns the certificates in use: of these files of probes, and others; nil:
	// none.
	Certificates func(probes []CertificateFile) []Certificate
	Sessions     func() []bgp.Session     // with BGP neighbors; nil: BGP is off
	Pairs        func() []netobj.BFDCount // BFD sessions with other nodes; nil: there are none
	Cluster      func() *report.Cluster   // nodes that exchange connections; nil, or nothing returned: there are none

	SharedStore func() (store.RemoteStatus, bool) // nil, or false: there is none

	Announcements func() []report.Announcement // of VIPs; nil: BGP is off

	cpu      *cpu
	troubles *troubles
}

// Peaks are the highest numbers of simultaneous connections.
type Peaks interface {
	Table() uint64
	Service(key lb.Key) uint64 // of a service with a limit
}

// Metrics answers scrapes.
type Metrics struct {
	options  Options
	store    *desired.State
	src      Source
	log      *slog.Logger
	registry *prometheus.Registry // the client library's metrics
	requests *prometheus.CounterVec
	refused  prometheus.Counter
	scrapes  chan struct{} // holds one element per running scrape
}

// New returns the metrics of a daemon.
func New(st *desired.State, src Source, o Options, log *slog.Logger) (*Metrics, error) {
	o.cpu, o.troubles = &cpu{}, &troubles{}
	requests, refused := requestMetrics()[0], requestMetrics()[1]
	m := &Metrics{
		options: o, store: st, src: src, log: log,
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: requests.Name, Help: requests.Help}, requests.Labels),
		refused:  prometheus.NewCounter(prometheus.CounterOpts{Name: refused.Name, Help: refused.Help}),
		scrapes:  make(chan struct{}, scrapesAtOnce),
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.refused,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// requestMetrics are counted as requests come.
func requestMetrics() []Metric {
	return []Metric{
		{"loxilb_api_requests_total", Counter, []string{"method", "code"}, "Requests to the REST API.", Always},
		{"loxilb_api_auth_failures_total", Counter, nil, "Requests to the REST API without valid credentials or sufficient rights (answers 401 and 403).", Always},
	}
}

// ServeHTTP answers a scrape: in text, or in protobuf if the client requests it, which native
// histograms need.
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
	// text is the default
	format := expfmt.NegotiateAccept(r.Header, expfmt.NewFormat(expfmt.TypeTextPlain), expfmt.NewFormat(expfmt.TypeProtoDelim))
	w.Header().Set("Content-Type", string(format))
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // fails for an unknown level only
		defer func() { m.logError(zip.Close()) }()
		out = zip
	}
	buf := bufio.NewWriterSize(out, 64<<10)
	m.logError(m.write(buf, format))
	m.logError(buf.Flush())
}

func (m *Metrics) write(w *bufio.Writer, format expfmt.Format) error {
	text := format.FormatType() == expfmt.TypeTextPlain
	families, err := m.registry.Gather()
	m.logError(err) // one wrong counter must not hide the others
	if !text {
		families = append(families, m.messages()...)
	}
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	if !text {
		return nil
	}
	p := &page{w: w}
	m.fill(p)
	return p.err
}

// Gather returns all of it as messages, for exporters.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	families, err := m.registry.Gather()
	return append(families, m.messages()...), err
}

func (m *Metrics) messages() []*dto.MetricFamily {
	p := &page{}
	m.fill(p)
	return p.families
}

// fill writes all selected families.
func (m *Metrics) fill(p *page) {
	v := newView(m.options, m.store, m.src)
	for _, f := range families() {
		if p.err != nil {
			return
		}
		if m.options.includes(&f.Metric, p.w != nil) {
			p.begin(&f.Metric)
			f.series(v, p)
			p.end()
		}
	}
}

// logError logs errors after the answer has begun.
func (m *Metrics) logError(err error) {
	if err != nil {
		m.log.Debug("a scrape failed", "error", err)
	}
}

// Observe counts a request to the API. Unknown methods share one label value, as clients could
// invent any number.
func (m *Metrics) Observe(method string, code int) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(method, strconv.Itoa(code)).Inc()
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		m.refused.Inc()
	}
}
