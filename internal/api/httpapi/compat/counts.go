package compat

import (
	"cmp"
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// The existing loxilb's counters as JSON. Each request reads the store and the data path; nothing
// is collected in between.

// serviceName returns the service's name, or its key if it has none.
func serviceName(s *lb.Service) string { return cmp.Or(s.Name, s.Key.String()) }

// eachService yields the services with their counters.
func (a *API) eachService(yield func(*lb.Service, *report.ServiceStats)) {
	var services []*lb.Service
	for s := range a.Store.Services.EachShared(a.Store.Snapshot()) {
		services = append(services, s)
	}
	rest.EachService(a.DataPath, services, func(place int, stats *report.ServiceStats) { yield(services[place], stats) })
}

// GetFlowCount replies with the number of tracked connections.
func (a *API) GetFlowCount(w http.ResponseWriter, _ *http.Request) {
	tracked, _ := a.DataPath.Occupancy()
	out := v1.FlowCount{ActiveConntrackCount: float64(tracked)}
	var active float64
	a.eachService(func(s *lb.Service, stats *report.ServiceStats) {
		n := float64(stats.Active)
		active += n
		switch s.Protocol {
		case lb.TCP:
			out.ActiveFlowCountTcp += n
		case lb.UDP:
			out.ActiveFlowCountUdp += n
		case lb.SCTP:
			out.ActiveFlowCountSctp += n
		}
	})
	out.InactiveFlowCount = max(0, float64(tracked)-active)
	rest.JSON(w, out)
}

// GetHostCount replies with the number of endpoints that are up.
func (a *API) GetHostCount(w http.ResponseWriter, _ *http.Request) {
	health := a.Health.EndpointCount()
	rest.JSON(w, v1.HostCount{HealthyHostCount: float64(health.Up), UnhealthyHostCount: float64(health.Down)})
}

// GetRuleCount replies with the number of services.
func (a *API) GetRuleCount(w http.ResponseWriter, _ *http.Request) {
	rest.JSON(w, v1.RuleCount{LbRuleCount: float64(a.Store.Services.Len(a.Store.Snapshot()))})
}

// GetNewFlowCount replies with the number of connections opened so far.
func (a *API) GetNewFlowCount(w http.ResponseWriter, _ *http.Request) {
	total, _ := a.byService(func(s *report.ServiceStats) uint64 { return s.Connections })
	rest.JSON(w, v1.NewFlowCount{NewFlowCount: total})
}

// GetRequestCount replies with the number of connections of each service so far.
func (a *API) GetRequestCount(w http.ResponseWriter, _ *http.Request) {
	total, list := a.byService(func(s *report.ServiceStats) uint64 { return s.Connections })
	rest.JSON(w, v1.RequestCount{TotalRequests: total, TotalRequestsPerService: list})
}

// GetErrorCount replies with the number of packets that each service has refused.
func (a *API) GetErrorCount(w http.ResponseWriter, _ *http.Request) {
	total, list := a.byService(func(s *report.ServiceStats) uint64 { return s.Refusals.Sum() })
	rest.JSON(w, v1.ErrorCount{TotalErrors: total, TotalErrorsPerService: list})
}

// byService counts something of the services, together and by their names.
func (a *API) byService(count func(*report.ServiceStats) uint64) (total float64, list []v1.NamedValue) {
	list = []v1.NamedValue{}
	at := map[string]int{} // services may share a name
	a.eachService(func(s *lb.Service, stats *report.ServiceStats) {
		n, name := float64(count(stats)), serviceName(s)
		total += n
		if i, there := at[name]; there {
			list[i].Value += n
			return
		}
		at[name] = len(list)
		list = append(list, v1.NamedValue{Name: name, Value: n})
	})
	return total, list
}

// GetProcessedTraffic replies with packets and bytes of both directions.
func (a *API) GetProcessedTraffic(w http.ResponseWriter, _ *http.Request) {
	var out v1.ProcessedTraffic
	a.eachService(func(s *lb.Service, stats *report.ServiceStats) {
		n := bytesOf(&stats.EndpointStats)
		out.ProcessedBytes += n
		out.ProcessedPackets += float64(stats.In.Packets + stats.Out.Packets)
		switch s.Protocol {
		case lb.TCP:
			out.ProcessedTcpBytes += n
		case lb.UDP:
			out.ProcessedUdpBytes += n
		case lb.SCTP:
			out.ProcessedSctpBytes += n
		}
	})
	rest.JSON(w, out)
}

func bytesOf(s *report.EndpointStats) float64 { return float64(s.In.Bytes + s.Out.Bytes) }

// share returns a part as a percentage of a whole.
func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}

// GetEndpointShares replies with the bytes of each endpoint, and their share of all bytes of its
// service's endpoints.
func (a *API) GetEndpointShares(w http.ResponseWriter, _ *http.Request) {
	out := map[string][]v1.EndpointShare{}
	a.eachService(func(s *lb.Service, stats *report.ServiceStats) {
		list := out[serviceName(s)]
		for i := range min(len(s.Endpoints), len(stats.Endpoints)) {
			list = append(list, v1.EndpointShare{Dip: s.Endpoints[i].AddrPort().String(), Value: bytesOf(&stats.Endpoints[i])})
		}
		out[serviceName(s)] = list
	})
	for _, list := range out {
		var whole float64
		for _, e := range list {
			whole += e.Value
		}
		for i := range list {
			list[i].Ratio = share(list[i].Value, whole)
		}
	}
	rest.JSON(w, out)
}

// GetServiceShares replies with the bytes of each service, and their share of the bytes of all
// services.
func (a *API) GetServiceShares(w http.ResponseWriter, _ *http.Request) {
	out, whole := map[string]v1.ServiceShare{}, 0.0
	a.eachService(func(s *lb.Service, stats *report.ServiceStats) {
		e := out[serviceName(s)]
		e.Value += bytesOf(&stats.EndpointStats)
		whole += bytesOf(&stats.EndpointStats)
		out[serviceName(s)] = e
	})
	for name, e := range out {
		e.Ratio = share(e.Value, whole)
		out[name] = e
	}
	rest.JSON(w, out)
}

// GetRuleDrops replies with the number of packets that firewall rules and source lists have
// dropped. The total includes deleted rules.
func (a *API) GetRuleDrops(w http.ResponseWriter, _ *http.Request) {
	drops := a.DataPath.Drops()
	out := v1.RuleDrops{TotalFwDrops: float64(drops["rule"]), TotalFwDropsPerRule: []v1.RuleDrop{}}
	for rule := range a.Store.Rules.All(a.Store.Snapshot()) {
		if rule.Action == policy.RuleDrop {
			hits, _ := a.DataPath.RuleHits(&rule)
			out.TotalFwDropsPerRule = append(out.TotalFwDropsPerRule, v1.RuleDrop{FwRule: rule.Key(), Value: float64(hits.Packets)})
		}
	}
	for _, reason := range [...]string{"source-not-allowed", "source-denied"} {
		n := float64(drops[reason])
		out.TotalFwDrops += n
		out.TotalFwDropsPerRule = append(out.TotalFwDropsPerRule, v1.RuleDrop{FwRule: reason, Value: n})
	}
	rest.JSON(w, out)
}
