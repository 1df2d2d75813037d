package metrics

import (
	"net/netip"

	"loxilb/internal/lb/report"
)

// maxDown bounds the endpoints that have series only while they are down.
const maxDown = 1000

// healthFamilies are about probes, which services share; GET config/endpoint/all lists the services
// that consider each.
func healthFamilies() []family {
	of := []string{"name", "endpoint", "probe"}
	count := func(value func(e *report.EndpointHealth) float64) func(*view, *page) {
		return ofProbes(func(e *report.EndpointHealth, p *page, labels ...string) { p.add(value(e), labels...) })
	}
	return []family{
		{Metric{"loxilb_probed_endpoints", Gauge, []string{"state"}, "Endpoints that are probed, by state: up, down (by probes or clients' failed handshakes), or unknown until the first probe ends.", Always}, func(v *view, p *page) {
			p.add(float64(v.health.Up), "up")
			p.add(float64(v.health.Down), "down")
			p.add(float64(v.health.Unknown), "unknown")
		}},
		{Metric{"loxilb_endpoint_up", Gauge, of, "1 if the endpoint is up, 0 if it is down, even if it is kept in rotation. No series before the end of its first probe. " +
			"Without --metrics-detail=endpoint, only for the first 1,000 that are down.", Always}, addUp},
		{Metric{"loxilb_endpoint_state_changes_total", Counter, of, "Changes of the endpoint's state since the daemon started.", OfEndpoint},
			count(func(e *report.EndpointHealth) float64 { return float64(e.Changes) })},
		{Metric{"loxilb_endpoint_state_since_timestamp_seconds", Gauge, of, "Unix time since when the endpoint has its state.", OfEndpoint},
			ofProbes(func(e *report.EndpointHealth, p *page, labels ...string) {
				if !e.Since.IsZero() {
					p.add(float64(e.Since.UnixMilli())/1000, labels...)
				}
			})},
		{Metric{"loxilb_endpoint_probe_failures", Gauge, of, "Probes of the endpoint that have failed in a row.", OfEndpoint},
			count(func(e *report.EndpointHealth) float64 { return float64(e.Failures) })},
		{
			Metric{"loxilb_endpoint_failed_probes_total", Counter, of, "Probes of the endpoint that have failed, since it is probed.", OfEndpoint},
			count(func(e *report.EndpointHealth) float64 { return float64(e.Failed) }),
		},
		{
			Metric{"loxilb_endpoint_downtime_seconds_total", Counter, of, "Time for which the endpoint was down, since it is probed.", OfEndpoint},
			count(func(e *report.EndpointHealth) float64 { return e.Downtime.Seconds() }),
		},
		{Metric{"loxilb_endpoint_probe_delay_seconds", Gauge, of, "How long the last successful probes have waited for their answer, on average.", OfEndpoint},
			ofProbes(func(e *report.EndpointHealth, p *page, labels ...string) {
				if e.AvgDelay > 0 {
					p.add(e.AvgDelay.Seconds(), labels...)
				}
			})},
	}
}

func ofProbes(f func(e *report.EndpointHealth, p *page, labels ...string)) func(*view, *page) {
	return func(v *view, p *page) {
		for e := range v.src.Endpoints {
			f(e, p, labelsOf(e)...)
		}
	}
}

func labelsOf(e *report.EndpointHealth) []string {
	at := e.Addr.String()
	if e.Probe.Port != 0 {
		at = netip.AddrPortFrom(e.Addr, e.Probe.Port).String()
	}
	return []string{e.Key(), at, e.Probe.Type.String()}
}

func addUp(v *view, p *page) {
	if !v.Endpoints {
		for _, e := range v.probed.down {
			p.add(0, labelsOf(e)...)
		}
		return
	}
	ofProbes(func(e *report.EndpointHealth, p *page, labels ...string) {
		if e.State != report.HealthUnknown {
			p.add(boolValue(e.State == report.HealthUp), labels...)
		}
	})(v, p)
}

// maxDrains bounds the drains with series.
const maxDrains = 1000

// drainFamilies are about endpoints that users drain.
func drainFamilies() []family {
	of := []string{"endpoint"}
	return []family{
		{Metric{"loxilb_drain_connections", Gauge, of, "Remaining connections of a drained endpoint (its address, or address and port); of the first 1,000.", Always}, func(v *view, p *page) {
			for _, d := range v.drains[:min(len(v.drains), maxDrains)] {
				p.add(float64(d.connections), d.Key())
			}
		}},
		{Metric{"loxilb_drain_deadline_timestamp_seconds", Gauge, of, "Unix time at which remaining connections of a drained endpoint are ended. No series: never.", Always}, func(v *view, p *page) {
			for _, d := range v.drains[:min(len(v.drains), maxDrains)] {
				if !d.Deadline.IsZero() {
					p.add(float64(d.Deadline.UnixMilli())/1000, d.Key())
				}
			}
		}},
	}
}
