package httpapi

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/event"
	"loxilb/internal/telemetry/logring"
)

// observationOptions are the parts that the area stands on. All but Ready are needed.
type observationOptions struct {
	Events     *event.Hub
	Metrics    http.Handler // answers GET metrics
	MetricsOff bool         // until a request switches them on
	Ready      func() (bool, string)
	Version    v1.Version
	Roles      func() []v1.InstanceState // of this node
	Log        *slog.Logger
	LogLevel   LogLevel
	Lines      *logring.Ring // of the log
	Reader     *rest.Reader
	Streams    *rest.Streams
}

// observationAPI answers requests about what the daemon and its machine do.
type observationAPI struct {
	observationOptions
	metricsOff atomic.Bool
	started    time.Time
}

func newObservationAPI(o observationOptions) *observationAPI {
	a := &observationAPI{observationOptions: o, started: time.Now()}
	a.metricsOff.Store(o.MetricsOff)
	return a
}
