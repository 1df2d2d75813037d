package metrics

import (
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// The existing loxilb's metrics with --compat, each by its canonical and by its former name, for
// dashboards made for either. They are sums of the packet path's counters.

// sums are the sums over current services.
type sums struct {
	flows            int // connections of services
	requests, errors uint64
	active           map[lb.Protocol]uint64
	traffic          map[lb.Protocol]report.Traffic
	all              report.Traffic
}

func requestsOf(s *report.ServiceStats) uint64 { return s.Connections }
func errorsOf(s *report.ServiceStats) uint64   { return s.Refusals.Sum() }

func sum(rows []row) *sums {
	s := &sums{active: map[lb.Protocol]uint64{}, traffic: map[lb.Protocol]report.Traffic{}}
	for i := range rows {
		stats, p := &rows[i].stats, rows[i].protocol
		s.requests += requestsOf(stats)
		s.errors += errorsOf(stats)
		s.active[p] += stats.Tracked()
		s.flows += int(stats.Tracked())
		t := report.Traffic{Packets: stats.In.Packets + stats.Out.Packets, Bytes: stats.In.Bytes + stats.Out.Bytes}
		s.traffic[p] = report.Traffic{Packets: s.traffic[p].Packets + t.Packets, Bytes: s.traffic[p].Bytes + t.Bytes}
		s.all = report.Traffic{Packets: s.all.Packets + t.Packets, Bytes: s.all.Bytes + t.Bytes}
	}
	return s
}

// named returns a family by each of its names.
func named(f family, names ...string) (list []family) {
	for _, name := range names {
		f.Name = name
		list = append(list, f)
	}
	return list
}

// contractNumber returns a number by each of its names.
func contractNumber(kind Type, help string, value func(v *view, s *sums) float64, names ...string) []family {
	f := number("", kind, help, func(v *view) float64 { return value(v, sum(v.rows)) })
	f.When = Contract
	return named(f, names...)
}

func contractFamilies() []family {
	var list []family
	add := func(kind Type, help string, value func(v *view, s *sums) float64, names ...string) {
		list = append(list, contractNumber(kind, help, value, names...)...)
	}
	add(Gauge, "Connections that are tracked now.", func(v *view, _ *sums) float64 { return float64(v.tracked) }, "active_conntrack_count")
	add(Gauge, "Services.", func(v *view, _ *sums) float64 { return float64(len(v.rows)) }, "lb_rule_count")
	add(Gauge, "Connections made to the existing services.", func(_ *view, s *sums) float64 { return float64(s.requests) }, "loxilb_new_flows", "new_flow_count")
	add(Gauge, "Connections that are tracked and whose service no longer exists.", func(v *view, s *sums) float64 { return float64(max(0, int(v.tracked)-s.flows)) }, "inactive_flow_count")
	add(Counter, "Connections made to the existing services.", func(_ *view, s *sums) float64 { return float64(s.requests) }, "loxilb_requests_total", "total_requests")
	add(Counter, "Packets that the existing services have refused: no endpoint takes new connections, or the connection table is full.",
		func(_ *view, s *sums) float64 { return float64(s.errors) }, "loxilb_errors_total", "total_errors")
	add(Gauge, "Endpoints that are up.", func(v *view, _ *sums) float64 { return float64(v.health.Up) }, "loxilb_healthy_endpoints", "healthy_host_count")
	add(Gauge, "Endpoints that are down.", func(v *view, _ *sums) float64 { return float64(v.health.Down) }, "loxilb_unhealthy_endpoints", "unhealthy_host_count")
	add(Counter, "Packets that firewall rules and lists of sources have dropped.", func(v *view, _ *sums) float64 {
		return float64(v.drops["rule"] + v.drops["source-not-allowed"] + v.drops["source-denied"])
	}, "loxilb_fw_drop_packets_total", "total_fw_drops")
	add(Gauge, "Firewall rules.", func(v *view, _ *sums) float64 { return countRules(v) }, "loxilb_firewall_rules")
	add(Counter, "Bytes of IP packets of the existing services, in and out.", func(_ *view, s *sums) float64 { return float64(s.all.Bytes) }, "loxilb_processed_bytes_total", "processed_bytes")
	add(Counter, "Packets of the existing services, in and out.", func(_ *view, s *sums) float64 { return float64(s.all.Packets) }, "loxilb_processed_packets_total", "processed_packets")
	for _, p := range lb.Protocols() {
		if !p.HasPorts() {
			continue
		}
		name := p.String()
		add(Gauge, "Connections of "+name+" services that are tracked now.", func(_ *view, s *sums) float64 { return float64(s.active[p]) }, "loxilb_active_flow_count_"+name, "active_flow_count_"+name)
		add(Counter, "Bytes of IP packets of "+name+" services, in and out.", func(_ *view, s *sums) float64 { return float64(s.traffic[p].Bytes) }, "loxilb_processed_"+name+"_bytes_total", "processed_"+name+"_bytes")
		add(Counter, "Packets of "+name+" services, in and out.", func(_ *view, s *sums) float64 { return float64(s.traffic[p].Packets) }, "loxilb_processed_"+name+"_packets_total")
	}
	return append(append(list, contractServices()...), contractRules()...)
}

// contractServices have series of services and endpoints.
func contractServices() []family {
	of, endpoint := []string{"service", "name"}, []string{"service", "name", "dip"}
	list := named(family{Metric{"", Counter, of, "Connections made to the service.", Contract},
		ofServices(func(r *row, p *page) { p.add(float64(requestsOf(&r.stats)), r.key, r.name) })}, "loxilb_service_requests_total", "total_requests_per_service")
	list = append(list, named(family{Metric{"", Counter, of, "Packets of the service refused, for either reason.", Contract},
		ofServices(func(r *row, p *page) { p.add(float64(errorsOf(&r.stats)), r.key, r.name) })}, "loxilb_service_errors_total", "total_errors_per_service")...)
	list = append(list,
		family{Metric{"total_load_dists_per_service", Gauge, of, "Part of the bytes of all services that the service has had, 0 to 1.", Contract}, addServiceShares},
		family{Metric{"endpoint_load_dists_per_service", Gauge, endpoint, "Part of the bytes of the service that the endpoint has had, 0 to 1.", Contract}, ofServices(addEndpointShares)})
	for _, one := range [...]struct {
		unit, help string
		value      func(report.Traffic) uint64
	}{
		{"packets", "Packets of the ", func(t report.Traffic) uint64 { return t.Packets }},
		{"bytes", "Bytes of IP packets of the ", func(t report.Traffic) uint64 { return t.Bytes }},
	} {
		const directions = ", in (from clients) and out (to clients)."
		list = append(list,
			family{Metric{"loxilb_service_traffic_" + one.unit + "_total", Counter, []string{"service", "name", "direction"}, one.help + "service" + directions, Contract},
				ofServices(func(r *row, p *page) {
					p.add(float64(one.value(r.stats.In)), r.key, r.name, "in")
					p.add(float64(one.value(r.stats.Out)), r.key, r.name, "out")
				})},
			family{Metric{"loxilb_endpoint_traffic_" + one.unit + "_total", Counter, []string{"service", "name", "endpoint", "direction"}, one.help + "endpoint" + directions, Contract},
				ofEndpoints(func(r *row, at string, s *report.EndpointStats, p *page) {
					p.add(float64(one.value(s.In)), r.key, r.name, at, "in")
					p.add(float64(one.value(s.Out)), r.key, r.name, at, "out")
				})})
	}
	return list
}

func contractRules() []family {
	return named(family{Metric{"", Counter, []string{"fw_rule"}, "Packets that the firewall rule has dropped; of the first 1,000 rules.", Contract}, ofRules(addDropped)},
		"loxilb_fw_rule_drop_packets_total", "total_fw_drops_per_rule")
}

// addServiceShares adds which part of all bytes each service has had since it is there.
func addServiceShares(v *view, p *page) {
	all := float64(sum(v.rows).all.Bytes)
	ofServices(func(r *row, p *page) {
		if own := bytesOf(&r.stats.EndpointStats); own > 0 {
			p.add(own/all, r.key, r.name)
		}
	})(v, p)
}

// addEndpointShares adds which part of the service's bytes each endpoint has had.
func addEndpointShares(r *row, p *page) {
	whole := 0.0
	r.each(func(_ string, s *report.EndpointStats) { whole += bytesOf(s) })
	if whole == 0 {
		return
	}
	r.each(func(at string, s *report.EndpointStats) { p.add(bytesOf(s)/whole, r.key, r.name, at) })
}

func bytesOf(s *report.EndpointStats) float64 { return float64(s.In.Bytes + s.Out.Bytes) }

// formerFamilies have deprecated names.
func formerFamilies() []family {
	former := func(name, now string, value func(*view) float64) family {
		f := number(name, Gauge, "Deprecated: use "+now+"; the next release has it with --compat only.", value)
		f.When = Former
		return f
	}
	return []family{
		former("loxilb_active_conntrack_entries", "loxilb_connections", func(v *view) float64 { return float64(v.tracked) }),
		former("loxilb_conntrack_max_entries", "loxilb_connections_max", func(v *view) float64 { return float64(v.limit) }),
		former("loxilb_lb_rules", "loxilb_services", func(v *view) float64 { return float64(len(v.rows)) }),
	}
}
