package metrics

import (
	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb/report"
)

// There may be 65,536 services, so each should have few series. The name of a service is a label
// only of loxilb_service_up; queries join it by group_left. Values that are 0 for most services
// have series only for services with other values.

const sparse = "Without --metrics-detail=endpoint, no series while it is 0."

func serviceFamilies() []family {
	of := []string{"service"}
	directed := []string{"service", "dir"}
	return []family{
		{Metric{"loxilb_service_up", Gauge, []string{"service", "name"}, "1 if the service has an available endpoint that is not known to be down, otherwise 0, also while the service is not in the data path yet.", OfService},
			func(v *view, p *page) {
				for i := range v.rows {
					r := &v.rows[i]
					p.add(boolValue(r.up()), r.key, r.name)
				}
			}},
		{Metric{"loxilb_service_endpoints_unavailable", Gauge, of, "Endpoints of the service that take no new connections now: down, drained, of weight 0, or backups that are not needed. No series if there are none.", OfService},
			ofServices(func(r *row, p *page) {
				if r.unavailable > 0 {
					p.add(float64(r.unavailable), r.key)
				}
			})},
		{Metric{"loxilb_service_endpoints", Gauge, []string{"service", "state"}, "Endpoints of the service by state: up, unprobed, standby, draining, drained, panic, down. Without --metrics-detail=endpoint, of services with an endpoint that is neither up nor unprobed.", OfService},
			func(v *view, p *page) {
				for i := range v.rows {
					v.rows[i].addStates(p, v.Endpoints)
				}
			}},
		{Metric{"loxilb_service_connections_total", Counter, of, "Connections made to the service.", OfService},
			ofServices(func(r *row, p *page) { p.add(float64(r.stats.Connections), r.key) })},
		{Metric{"loxilb_service_connections_active", Gauge, of, "Open connections of the service; closed ones that are still tracked are not counted. " + sparse, OfService},
			ofUsed(func(r *row, p *page) { p.add(float64(r.stats.Active), r.key) })},
		{Metric{"loxilb_service_connections_inactive", Gauge, of, "Closed connections of the service that are still tracked, for late packets. " + sparse, OfService},
			ofUsed(func(r *row, p *page) { p.add(float64(r.stats.Inactive), r.key) })},
		{Metric{"loxilb_service_packets_total", Counter, directed, "Packets of the service, in (from clients) and out (to clients). " + sparse, OfService},
			ofUsed(func(r *row, p *page) {
				p.add(float64(r.stats.In.Packets), r.key, "in")
				p.add(float64(r.stats.Out.Packets), r.key, "out")
			})},
		{Metric{"loxilb_service_bytes_total", Counter, directed, "Bytes of IP packets of the service, in (from clients) and out (to clients). " + sparse, OfService},
			ofUsed(func(r *row, p *page) {
				p.add(float64(r.stats.In.Bytes), r.key, "in")
				p.add(float64(r.stats.Out.Bytes), r.key, "out")
			})},
		{Metric{"loxilb_service_connections_limit", Gauge, of, "Open connections that the service may have (--max-connections). No series if unlimited.", OfService},
			ofLimited(func(_ *view, r *row, p *page) { p.add(float64(r.limit), r.key) })},
		{Metric{"loxilb_service_connections_peak", Gauge, of, "Highest number of open connections of the service since the daemon started, read every 5 s; for services with --max-connections.", OfService},
			ofLimited(func(v *view, r *row, p *page) {
				if v.Peaks != nil {
					p.add(float64(v.Peaks.Service(r.serviceKey)), r.key)
				}
			})},
		{Metric{"loxilb_service_failed_probes_total", Counter, of, "Failed probes of the service's endpoints since the daemon started. No series before the first.", OfService},
			ofTroubled(func(t trouble) float64 { return float64(t.failed) })},
		{Metric{"loxilb_service_endpoint_downtime_seconds_total", Counter, of, "Total time for which endpoints of the service were down since the daemon started. No series before the first.", OfService},
			ofTroubled(func(t trouble) float64 { return t.downtime.Seconds() })},
		{Metric{"loxilb_service_refused_packets_total", Counter, []string{"service", "reason"}, "Packets of clients that the service refused a connection, by drop reason (loxilb-drops(7)). No series for a reason without packets.", OfService},
			func(v *view, p *page) {
				ofServices(func(r *row, p *page) { r.addRefusals(p, v.Endpoints) })(v, p)
			}},
		{Metric{"loxilb_service_handshake_seconds", Histogram, of, "Time from the first SYN of a connection of the service to the endpoint's SYN+ACK. " + handshakePrecision, Native},
			func(v *view, p *page) {
				for i := range v.rows {
					if r := &v.rows[i]; r.known && r.stats.Handshakes.Opened > 0 {
						p.addHandshakes(&r.stats.Handshakes, v.jiffy, r.key)
					}
				}
			}},
	}
}

// addStates adds the number of endpoints in each non-empty state.
func (r *row) addStates(p *page, all bool) {
	count, notable := map[servicestate.State]int{}, all
	for _, s := range r.states.Endpoints {
		count[s]++
		notable = notable || s != servicestate.Up && s != servicestate.Unprobed
	}
	if !notable {
		return
	}
	for _, s := range servicestate.EndpointStates() {
		if count[s] > 0 {
			p.add(float64(count[s]), r.key, string(s))
		}
	}
}

// addRefusals adds the number of refusals by reason; all: also 0 for reasons that any service may
// have.
func (r *row) addRefusals(p *page, all bool) {
	for reason, n := range r.stats.Refusals {
		reason := report.RefusalReason(reason)
		if n > 0 || all && (reason == report.NoEndpoint || reason == report.ConntrackFull) {
			p.add(float64(n), r.key, reason.String())
		}
	}
}

// ofServices calls f for each service in the data path.
func ofServices(f func(r *row, p *page)) func(*view, *page) {
	return func(v *view, p *page) {
		for i := range v.rows {
			if v.rows[i].known {
				f(&v.rows[i], p)
			}
		}
	}
}

// ofLimited calls f for services that have a limit of open connections.
func ofLimited(f func(v *view, r *row, p *page)) func(*view, *page) {
	return func(v *view, p *page) {
		for i := range v.rows {
			if v.rows[i].limit > 0 {
				f(v, &v.rows[i], p)
			}
		}
	}
}

// ofTroubled adds a value of each service with failures.
func ofTroubled(value func(trouble) float64) func(*view, *page) {
	return func(v *view, p *page) {
		for i := range v.rows {
			if t, counted := v.troubles[v.rows[i].serviceKey]; counted {
				p.add(value(t), v.rows[i].key)
			}
		}
	}
}

// ofUsed calls f for services that have had a connection.
func ofUsed(f func(r *row, p *page)) func(*view, *page) {
	return ofSelected(func(s *report.ServiceStats) bool { return s.Connections > 0 }, f)
}

// ofSelected calls f for the services for which is returns true; with --metrics-detail=endpoint,
// for all services.
func ofSelected(is func(*report.ServiceStats) bool, f func(r *row, p *page)) func(*view, *page) {
	return func(v *view, p *page) {
		ofServices(func(r *row, p *page) {
			if v.Endpoints || is(&r.stats) {
				f(r, p)
			}
		})(v, p)
	}
}

func endpointFamilies() []family {
	of := []string{"service", "endpoint"}
	directed := []string{"service", "endpoint", "dir"}
	return []family{
		{Metric{"loxilb_endpoint_weight", Gauge, of, "Weight of the endpoint; with 0 it gets no new connections.", OfEndpoint}, func(v *view, p *page) {
			for i := range v.rows {
				for j, at := range v.rows[i].endpoints {
					p.add(float64(v.rows[i].weights[j]), v.rows[i].key, at)
				}
			}
		}},
		{Metric{"loxilb_endpoint_effective_weight", Gauge, of, "Current weight of the endpoint for new connections: less than its weight during --slow-start, 0 if it gets none.", OfEndpoint}, func(v *view, p *page) {
			for i := range v.rows {
				r := &v.rows[i]
				for j, at := range r.endpoints[:min(len(r.endpoints), len(r.stats.Endpoints))] {
					p.add(float64(r.weights[j])*r.stats.Endpoints[j].Share, r.key, at)
				}
			}
		}},
		{Metric{"loxilb_endpoint_available", Gauge, of, "1 if the endpoint takes new connections of the service, 0 if it is down, drained, of weight 0, or a backup that is not needed.", OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) { p.add(boolValue(s.Available), r.key, at) })},
		{Metric{"loxilb_endpoint_connections_active", Gauge, of, "Open connections of the endpoint; closed ones that are still tracked are not counted.", OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) { p.add(float64(s.Active), r.key, at) })},
		{Metric{"loxilb_endpoint_connections_inactive", Gauge, of, "Closed connections of the endpoint that are still tracked, for late packets.", OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) { p.add(float64(s.Inactive), r.key, at) })},
		{Metric{"loxilb_endpoint_connections_total", Counter, of, "Connections made to the endpoint.", OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) { p.add(float64(s.Connections), r.key, at) })},
		{Metric{"loxilb_endpoint_refused_packets_total", Counter, []string{"service", "endpoint", "reason"}, "The part of loxilb_service_refused_packets_total that the endpoint caused: every source port towards it is in use (snat-ports-exhausted), or the client's own one (tuple-in-use).", OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) {
				s.Refusals.Each(func(reason report.RefusalReason, n uint64) { p.add(float64(n), r.key, at, reason.String()) })
			})},
		{Metric{"loxilb_endpoint_packets_total", Counter, directed, "Packets of the endpoint, in (from clients) and out (to clients).", OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) {
				p.add(float64(s.In.Packets), r.key, at, "in")
				p.add(float64(s.Out.Packets), r.key, at, "out")
			})},
		{Metric{"loxilb_endpoint_bytes_total", Counter, directed, "Bytes of IP packets of the endpoint, in (from clients) and out (to clients).", OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) {
				p.add(float64(s.In.Bytes), r.key, at, "in")
				p.add(float64(s.Out.Bytes), r.key, at, "out")
			})},
		{Metric{"loxilb_endpoint_handshakes_total", Counter, []string{"service", "endpoint", "event"}, "TCP handshakes with the endpoint, if it had any: " + handshakeEvents, OfEndpoint},
			ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) {
				if s.Handshakes.Opened > 0 {
					eachHandshakeEvent(&s.Handshakes, func(event string, n uint64) { p.add(float64(n), r.key, at, event) })
				}
			})},
		{Metric{"loxilb_endpoint_handshake_seconds", Histogram, of, "Time from the first SYN of a connection to the endpoint's SYN+ACK, if it had any. " + handshakePrecision, OfEndpoint},
			func(v *view, p *page) {
				for i := range v.rows {
					v.rows[i].each(func(at string, s *report.EndpointStats) {
						if s.Handshakes.Opened > 0 {
							p.addHandshakes(&s.Handshakes, v.jiffy, v.rows[i].key, at)
						}
					})
				}
			}},
	}
}

// ofEndpoints calls f for each endpoint of each service.
func ofEndpoints(f func(r *row, at string, s *report.EndpointStats, p *page)) func(*view, *page) {
	return func(v *view, p *page) {
		for i := range v.rows {
			v.rows[i].each(func(at string, s *report.EndpointStats) { f(&v.rows[i], at, s, p) })
		}
	}
}
