package contract

// Metric is a metric of GET /metrics.
type Metric struct {
	Name  string
	State State
	Note  string // if Unsupported, the reason and an alternative
}

// Metrics returns the metrics of the existing loxilb, by their old and canonical names.
func Metrics() []Section[Metric] {
	const (
		newFlows = "connections opened since the services were created, not per sweep of 10 s: use its increase"
		shares   = "of bytes since the services were created, not of 10 s"
		pairs    = "one series per client and endpoint would be unbounded: GET /metrics/lbprocessedtraffic has the current connections, in at most 10,000 groups"
		clients  = "one series per client would be unbounded: GET /metrics/reqcountperclient has at most 10,000"
		sweeps   = "it counts connections that sweeps find; in this build, packets count them"
	)
	return []Section[Metric]{
		{"Metrics of GET /metrics with --compat", []Metric{
			{"loxilb_new_flows", Differs, newFlows},
			{"new_flow_count", Differs, newFlows},
			{"inactive_flow_count", Differs, "tracked connections whose service no longer exists"},
			{"total_load_dists_per_service", Differs, shares},
			{"endpoint_load_dists_per_service", Differs, shares + "; dip includes the port"},
			{"loxilb_firewall_rules", Same, ""},
			{"loxilb_fw_rule_drop_packets_total", Better, "counted by packets; the first 1,000 rules"},
			{"total_fw_drops_per_rule", Better, "counted by packets; the first 1,000 rules"},
			{"loxilb_system_cpu_utilization_percent", Same, "since the previous scrape"},
			{"loxilb_system_memory_utilization_percent", Same, ""},
			{"loxilb_system_disk_utilization_percent", Same, ""},
			{"consumed_lcus", Unsupported, "it is a unit of a cloud's bills, not a measurement; it is computed from loxilb_requests_total and loxilb_processed_bytes_total"},
			{"loxilb_conntrack_stat_resets_total", Unsupported, sweeps},
			{"loxilb_closed_connections_processed_total", Unsupported, sweeps},
			{"lb_rule_interaction_bytes", Unsupported, pairs},
			{"loxilb_lb_rule_interaction_bytes_total", Unsupported, pairs},
			{"lb_rule_interaction_packets", Unsupported, pairs},
			{"loxilb_lb_rule_interaction_packets_total", Unsupported, pairs},
			{"loxilb_client_traffic_packets_total", Unsupported, clients},
		}},
	}
}
