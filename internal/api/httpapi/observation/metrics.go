package observation

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
)

// GetMetrics replies with the metrics in the Prometheus text format.
func (a *API) GetMetrics(w http.ResponseWriter, r *http.Request) {
	if a.metricsOff.Load() {
		rest.Refuse(http.StatusServiceUnavailable, "metrics are switched off: POST %s/config/metrics switches them on", rest.BaseURL).Write(w)
		return
	}
	a.Metrics.ServeHTTP(w, r)
}

// GetMetricsConfig reports whether metrics are served.
func (a *API) GetMetricsConfig(w http.ResponseWriter, _ *http.Request) {
	rest.JSON(w, v1.MetricsConfig{Prometheus: !a.metricsOff.Load()})
}

// EnableMetrics enables metrics.
func (a *API) EnableMetrics(w http.ResponseWriter, _ *http.Request) {
	a.metricsOff.Store(false)
	rest.Success(w)
}

// DisableMetrics disables metrics until the daemon ends.
func (a *API) DisableMetrics(w http.ResponseWriter, _ *http.Request) {
	a.metricsOff.Store(true)
	rest.Success(w)
}
