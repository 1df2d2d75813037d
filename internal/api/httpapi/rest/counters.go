package rest

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Handshakes returns the durations of handshakes, or nil without any.
func Handshakes(t rates.Times) *v1.HandshakeTimes {
	if t.Count == 0 {
		return nil
	}
	return &v1.HandshakeTimes{Count: t.Count, Median: t.Median.Seconds(), P99: t.P99.Seconds()}
}

// RefusedBy lists refused packets by reason.
func RefusedBy(r *report.Refusals) []v1.RefusedCount {
	out := []v1.RefusedCount{}
	r.Each(func(reason report.RefusalReason, n uint64) {
		out = append(out, v1.RefusedCount{Reason: reason.String(), Count: n})
	})
	return out
}

// ServiceCounters is the part of the data path that has counters of services.
type ServiceCounters interface {
	// EachServiceStats yields the counters of the listed services that the data path has, with
	// their index in the list, in order.
	EachServiceStats(keys []lb.Key, yield func(place int, s *report.ServiceStats))
}

// EachService calls f with the position and the counters of each service, in order. Counters are
// zero for services that the data path lacks.
func EachService(d ServiceCounters, services []*lb.Service, f func(place int, stats *report.ServiceStats)) {
	keys := make([]lb.Key, len(services))
	for i, s := range services {
		keys[i] = s.Key
	}
	next := 0
	missing := func(until int) {
		for ; next < until; next++ {
			f(next, &report.ServiceStats{})
		}
	}
	d.EachServiceStats(keys, func(place int, stats *report.ServiceStats) {
		missing(place)
		f(place, stats)
		next = place + 1
	})
	missing(len(keys))
}
