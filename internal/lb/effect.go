package lb

import (
	"slices"
	"time"
)

// Ineffective is a setting that changes nothing as the service is.
type Ineffective struct {
	Field, Why string
}

// clientInterval and clientFall are defaults of the contract's clients, which send them with each
// service.
const (
	clientInterval = time.Minute
	clientFall     = 2
)

// Ineffective lists settings of a service that change nothing and are not defaults, of loxilb or of
// the contract's clients.
func (s *Service) Ineffective() (list []Ineffective) {
	const notProbed = "are not probed until monitor or probetype says so"
	probed := s.Monitored() || s.Probe.Type != ProbeAuto
	for _, c := range [...]struct {
		is    bool
		field string
		why   string
	}{
		{!probed && s.Probe.Request != "", FieldProbeRequest, notProbed},
		{!probed && s.Probe.Response != "", FieldProbeResponse, notProbed},
		{!probed && s.Probe.Port != 0, FieldProbePort, notProbed},
		{!probed && s.Probe.Host != "", FieldProbeHost, notProbed},
		{!probed && len(s.Probe.Statuses) > 0, FieldProbeStatuses, notProbed},
		{!probed && s.Probe.CA != "", FieldProbeCA, notProbed},
		{!probed && s.Probe.Certificate != "", FieldProbeCertificate, notProbed},
		{!probed && given(s.Probe.Interval, DefaultProbeInterval, clientInterval), FieldProbeInterval, notProbed},
		{!probed && given(s.Probe.Fall, DefaultProbeFall, clientFall), FieldProbeRetries, notProbed},
		{!probed && given(s.Probe.Rise, DefaultProbeRise), FieldProbeRise, notProbed},
		{!probed && s.Probe.Timeout != 0, FieldProbeWait, notProbed},
		{!s.Monitored() && s.OnFail != ClosingKeep, FieldOnFail, notProbed},
		{!s.Monitored() && !s.TakesOutliersOut() && s.AllDown != AllDownRefuse, FieldAllDown, notProbed},
		{s.FailoverBelow > 0 && !s.HasBackups(), FieldFailover, "have no backups among them"},
		{s.SlowStart > 0 && len(s.Endpoints) < 2, FieldSlowStart, "are fewer than two"},
		{s.Outlier == OutlierOn && !s.TakesOutliersOut(), FieldOutlier, "are fewer than two"},
		{s.Algorithm.Layout() == LayoutOnce && s.weighsApart(), FieldWeight, "take turns by rr; select priority for weights"},
	} {
		if c.is {
			list = append(list, Ineffective{c.field, "the endpoints of " + s.Key.String() + " " + c.why})
		}
	}
	return list
}

// given reports whether a value is set, and is none of the defaults.
func given[T comparable](value T, defaults ...T) bool {
	var unset T
	return value != unset && !slices.Contains(defaults, value)
}

// weighsApart reports whether endpoints that take connections have different weights.
func (s *Service) weighsApart() bool {
	first := uint16(0)
	for _, e := range s.Endpoints {
		switch {
		case e.Weight == 0:
		case first == 0:
			first = e.Weight
		case e.Weight != first:
			return true
		}
	}
	return false
}
