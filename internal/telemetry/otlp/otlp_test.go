package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collectlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"loxilb/internal/event"
	"loxilb/test/netnstest/labtest"
)

// collector receives OTLP over HTTP.
type collector struct {
	mu      sync.Mutex
	answer  int // the status of responses, initially 200
	numbers map[string]float64
	scopes  []string // the attributes of the sender
	events  []string
	headers http.Header
	asked   int
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	zip, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(zip)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.headers = r.Header
	if c.answer != http.StatusOK {
		http.Error(w, "not now", c.answer)
		return
	}
	switch r.URL.Path {
	case "/otlp/v1/metrics":
		err = c.takeMetrics(body)
	case "/otlp/v1/logs":
		err = c.takeEvents(body)
	default:
		err = errors.New("not here")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *collector) takeMetrics(body []byte) error {
	var request collectmetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	for _, resource := range request.GetResourceMetrics() {
		c.scopes = nil
		for _, a := range resource.GetResource().GetAttributes() {
			c.scopes = append(c.scopes, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				for _, point := range m.GetSum().GetDataPoints() {
					c.numbers[m.GetName()] = point.GetAsDouble()
				}
				for _, point := range m.GetHistogram().GetDataPoints() {
					c.numbers[m.GetName()] = float64(point.GetCount())
				}
			}
		}
	}
	return nil
}

func (c *collector) takeEvents(body []byte) error {
	var request collectlogs.ExportLogsServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	for _, resource := range request.GetResourceLogs() {
		for _, scope := range resource.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				c.events = append(c.events, record.GetEventName()+" "+record.GetSeverityText()+" "+record.GetBody().GetStringValue())
			}
		}
	}
	return nil
}

// eventually waits until has returns nil.
func (c *collector) eventually(t *testing.T, has func() error) {
	t.Helper()
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return has()
	})
}

func (c *collector) answers(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = code
}

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lockedLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// TestExport checks that a collector gets metrics and events, with the configured headers, by TLS.
// While it refuses them, a status and one log line say so; events of that time are sent later; and
// the end of the daemon does not wait for it.
func TestExport(t *testing.T) {
	t.Parallel()
	c := &collector{answer: http.StatusOK, numbers: map[string]float64{}}
	server := httptest.NewTLSServer(c)
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	registry, hub, lines := prometheus.NewRegistry(), event.NewHub(), &lockedLog{}
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "loxilb_test_total", Help: "Test."})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "loxilb_test_seconds", Help: "Test.", NativeHistogramBucketFactor: 2})
	registry.MustRegister(counter, histogram)
	counter.Add(3)
	histogram.Observe(0.5)
	e := New(Config{
		Endpoint: server.URL + "/otlp", Headers: map[string]string{"Authorization": "Bearer x"}, TLS: &tls.Config{RootCAs: roots}, Interval: 50 * time.Millisecond,
		Version: "1.2.3", Host: "node",
	}, registry, hub, slog.New(slog.NewTextHandler(lines, nil)))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx)
	}()
	c.eventually(t, func() error {
		if c.numbers["loxilb_test_total"] != 3 ||
			!strings.Contains(strings.Join(c.scopes, " "), "service.name=loxilb service.version=1.2.3") || c.headers.Get("Authorization") != "Bearer x" {
			return errors.New(strings.Join(c.scopes, " "))
		}
		return nil
	})
	publish := func(name string) { hub.Publish(event.Object{ObjectKind: "service", Key: name, Action: event.Failed}) }
	sent := func(name string) func() error {
		return func() error {
			for _, text := range c.events {
				if strings.HasPrefix(text, "loxilb.object WARN ") && strings.Contains(text, name) {
					return nil
				}
			}
			return errors.New("no event of " + name)
		}
	}
	labtest.Eventually(t, 20*time.Second, func(context.Context) error { // until the exporter follows events
		publish("first")
		c.mu.Lock()
		defer c.mu.Unlock()
		return sent("first")()
	})

	c.answers(http.StatusServiceUnavailable)
	publish("second")
	c.eventually(t, func() error {
		if _, err := e.LastError(); err == nil {
			return errors.New("no error")
		}
		return nil
	})
	counter.Inc()
	asked := 0
	c.eventually(t, func() error {
		if asked == 0 {
			asked = c.asked
		}
		if c.asked < asked+5 {
			return errors.New("it is not tried again")
		}
		return nil
	})
	c.answers(http.StatusOK)
	c.eventually(t, sent("second"))
	c.eventually(t, func() error {
		if _, err := e.LastError(); err != nil {
			return err
		}
		if c.numbers["loxilb_test_total"] != 4 {
			return errors.New("the metrics are old")
		}
		return nil
	})
	if n := strings.Count(lines.text(), "what=metrics"); n != 2 || strings.Contains(lines.text(), "Bearer") {
		t.Errorf("%d lines: %s", n, lines.text())
	}

	server.Close()
	began := time.Now()
	stop()
	<-done
	if took := time.Since(began); took > exitWait+2*time.Second {
		t.Errorf("the end waited for %v", took)
	}
}

// TestSilentCollector checks that a collector that accepts requests and never answers delays
// neither events nor the end.
func TestSilentCollector(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	defer server.Close()
	defer close(leave)
	hub := event.NewHub()
	e := New(Config{Endpoint: server.URL, Interval: 20 * time.Millisecond}, prometheus.NewRegistry(), hub, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx)
	}()
	began := time.Now()
	for range 10 * queued {
		hub.Publish(event.Object{ObjectKind: "service", Key: "x", Action: event.Applied})
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("events waited for %v", took)
	}
	stop()
	<-done
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the end waited for %v", took)
	}
}

// TestOddCollector checks that redirects are not followed, as the other server would get the
// headers, and that one line is kept of a response of megabytes.
func TestOddCollector(t *testing.T) {
	t.Parallel()
	var redirected atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	defer elsewhere.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"moved": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"kept": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"talker": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("\x1b[31m no\n", 300_000), http.StatusBadRequest)
		},
	} {
		server := httptest.NewServer(answer)
		defer server.Close()
		e := New(Config{Endpoint: server.URL, Headers: map[string]string{"X-Key": "secret"}, Interval: 20 * time.Millisecond},
			prometheus.NewRegistry(), event.NewHub(), slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.Run(ctx)
		}()
		labtest.Eventually(t, 20*time.Second, func(context.Context) error {
			_, err := e.LastError()
			switch {
			case err == nil:
				return errors.New(name + ": no error")
			case len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\x1b\n"):
				t.Errorf("%s: %d bytes: %.100q", name, len(err.Error()), err)
			}
			return nil
		})
		stop()
		<-done
	}
	if n := redirected.Load(); n > 0 {
		t.Errorf("%d requests were led elsewhere", n)
	}
}
