package balancer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// collectors are the metrics of balancers. controller-runtime adds those of queues and requests.
type collectors struct {
	up, services, refused *prometheus.GaugeVec
	seconds               *prometheus.HistogramVec
	failures              *prometheus.CounterVec
}

var measures = newCollectors()

func newCollectors() *collectors {
	label := []string{"balancer"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kube_loxilb", Name: name, Help: help}, label)
	}
	c := &collectors{
		up:       gauge("balancer_up", "1 while the balancer answers."),
		services: gauge("balancer_services", "Services of this controller on the balancer."),
		refused:  gauge("balancer_refused_services", "Services that the balancer refuses."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kube_loxilb", Name: "balancer_sync_seconds", Help: "How long it takes to bring the balancer up to date.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, label),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kube_loxilb", Name: "balancer_failures_total", Help: "Failed attempts to bring the balancer up to date.",
		}, label),
	}
	metrics.Registry.MustRegister(c.up, c.services, c.refused, c.seconds, c.failures)
	return c
}

// recordMetrics updates the metrics of a balancer, unless it was removed: its last request may end
// after its metrics were deleted.
func (m *member) recordMetrics(took time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	services, refused := len(m.existing.entries), len(m.refused)
	up := 1.0
	if err != nil {
		measures.failures.WithLabelValues(m.URL).Inc()
		if !isBusy(err) {
			up = 0
		}
	}
	measures.up.WithLabelValues(m.URL).Set(up)
	measures.services.WithLabelValues(m.URL).Set(float64(services))
	measures.refused.WithLabelValues(m.URL).Set(float64(refused))
	measures.seconds.WithLabelValues(m.URL).Observe(took.Seconds())
}

// deleteMetrics deletes the metrics of a removed balancer.
func deleteMetrics(url string) {
	label := prometheus.Labels{"balancer": url}
	measures.up.Delete(label)
	measures.services.Delete(label)
	measures.refused.Delete(label)
	measures.seconds.Delete(label)
	measures.failures.Delete(label)
}
