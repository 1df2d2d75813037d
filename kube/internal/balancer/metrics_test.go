package balancer

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// up returns the metric balancer_up of a balancer, and whether there is one.
func up(t *testing.T, url string) (value float64, exists bool) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kube_loxilb_balancer_up" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == url {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

// TestMetrics checks that a balancer counts as up while it answers, even if it applies no changes,
// and that a balancer which is removed during a request has no metrics afterwards: alerts would
// never end.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	m := f.members[r.URL]
	for _, tc := range []struct {
		err  error
		want float64
	}{{nil, 1}, {busyError{&StatusError{Status: http.StatusServiceUnavailable}}, 1}, {errors.New("no answer"), 0}} {
		m.recordMetrics(time.Second, tc.err)
		if got, exists := up(t, r.URL); got != tc.want || !exists {
			t.Errorf("after %v, the metric is %v, want %v", tc.err, got, tc.want)
		}
	}
	f.SetTargets(nil)
	m.recordMetrics(time.Second, errors.New("canceled"))
	if got, exists := up(t, r.URL); exists {
		t.Errorf("after the removal of the balancer, the metric is %v", got)
	}
}
