// Package otlp sends metrics and events to a collector of OpenTelemetry, by OTLP over HTTP. A
// collector that is slow, away or wrong costs a bounded queue and one line of the log.
//
// It is the only user of 16 of the 47 modules in the daemon, and of 2 of its 43 MB.
package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"loxilb/internal/event"
)

const (
	patience  = 10 * time.Second // to wait for an answer of the collector
	queued    = 2048             // events that may wait to be sent; beyond it the oldest are lost
	eventWait = time.Second      // for further events to send together
	exitWait  = time.Second      // for pending data when the daemon ends
)

// Config configures the exporter.
type Config struct {
	Endpoint string // URL of the collector, below which v1/metrics and v1/logs are
	Headers  map[string]string
	TLS      *tls.Config
	Interval time.Duration // between two exports of metrics
	Version  string        // of the daemon
	Host     string
}

// Exporter exports metrics and events to a collector.
type Exporter struct {
	config  Config
	metrics prometheus.Gatherer
	hub     *event.Hub
	log     *slog.Logger
	states  [2]*exportState // of exporting metrics, and events
}

// New returns an Exporter. It sends nothing before Run.
func New(c Config, metrics prometheus.Gatherer, hub *event.Hub, log *slog.Logger) *Exporter {
	return &Exporter{
		config: c, metrics: metrics, hub: hub, log: log,
		states: [2]*exportState{{what: "metrics", log: log}, {what: "events", log: log}},
	}
}

// LastError returns the current error, and since when; nil: it works.
func (e *Exporter) LastError() (since time.Time, err error) {
	for _, t := range e.states {
		if since, err := t.current(); err != nil {
			return since, err
		}
	}
	return time.Time{}, nil
}

// Run exports until ctx ends.
func (e *Exporter) Run(ctx context.Context) {
	// The library would print other errors itself.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { e.log.Debug("OpenTelemetry", "error", err) }))
	metrics, err := e.meter(ctx)
	if err != nil {
		e.states[0].record(err)
		return
	}
	logs, err := e.logger(ctx)
	if err != nil {
		e.states[1].record(err)
		return
	}
	e.follow(ctx, logs.Logger("loxilb"))
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitWait)
	defer cancel()
	if err := errors.Join(metrics.Shutdown(leave), logs.Shutdown(leave)); err != nil {
		e.log.Debug("the last metrics or events are not exported", "error", err)
	}
}

// client follows no redirects: the headers are secrets of the collector.
func (e *Exporter) client() *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Timeout: patience, CheckRedirect: stay,
		Transport: &http.Transport{TLSClientConfig: e.config.TLS, Proxy: http.ProxyFromEnvironment, MaxIdleConns: 2, IdleConnTimeout: 2 * e.config.Interval}}
}

func (e *Exporter) resource() *resource.Resource {
	return resource.NewSchemaless(attribute.String("service.name", "loxilb"), attribute.String("service.version", e.config.Version),
		attribute.String("service.instance.id", e.config.Host), attribute.String("host.name", e.config.Host))
}

func (e *Exporter) meter(ctx context.Context) (*sdkmetric.MeterProvider, error) {
	to, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(e.config.Endpoint+"/v1/metrics"), otlpmetrichttp.WithHeaders(e.config.Headers),
		otlpmetrichttp.WithHTTPClient(e.client()), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression), otlpmetrichttp.WithTimeout(patience),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})) // the next export has it all
	if err != nil {
		return nil, fmt.Errorf("export metrics: %w", err)
	}
	reader := sdkmetric.NewPeriodicReader(metricExporter{to, e.states[0]}, sdkmetric.WithInterval(e.config.Interval), sdkmetric.WithTimeout(patience),
		sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(e.metrics))))
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(e.resource())), nil
}

func (e *Exporter) logger(ctx context.Context) (*sdklog.LoggerProvider, error) {
	to, err := otlploghttp.New(ctx, otlploghttp.WithEndpointURL(e.config.Endpoint+"/v1/logs"), otlploghttp.WithHeaders(e.config.Headers),
		otlploghttp.WithHTTPClient(e.client()), otlploghttp.WithCompression(otlploghttp.GzipCompression), otlploghttp.WithTimeout(patience),
		otlploghttp.WithRetry(otlploghttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: patience, MaxElapsedTime: 3 * patience}))
	if err != nil {
		return nil, fmt.Errorf("export events: %w", err)
	}
	queue := sdklog.NewBatchProcessor(logExporter{to, e.states[1]}, sdklog.WithMaxQueueSize(queued), sdklog.WithExportInterval(eventWait), sdklog.WithExportTimeout(3*patience))
	return sdklog.NewLoggerProvider(sdklog.WithProcessor(queue), sdklog.WithResource(e.resource())), nil
}

// metricExporter records the results of exports.
type metricExporter struct {
	sdkmetric.Exporter
	state *exportState
}

// Export exports metrics. Failures are reported here, not to the library.
func (m metricExporter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	m.state.record(m.Exporter.Export(ctx, data))
	return nil
}

// logExporter records the results of exports of events.
type logExporter struct {
	sdklog.Exporter
	state *exportState
}

// Export exports events. Failures are reported here, not to the library.
func (l logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	l.state.record(l.Exporter.Export(ctx, records))
	return nil
}
