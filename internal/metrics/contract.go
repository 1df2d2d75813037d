package metrics

import (
	"bufio"
	"strconv"

	"loxilb/internal/lb"
)

// The contract's metrics that families do not have under names of their own, each by its canonical name and by the one of before it, for
// dashboards that were made for either. They are sums of what is counted by packets.

// total is one number, or one of each service.
type total struct {
	canonical, legacy string // one may be empty
	kind, help        string
	value             func(*sums) float64
	each              func(*lb.ServiceStats) uint64 // nil: there is one number
}

// sums are what totals are read from.
type sums struct {
	services, connections   int // that are tracked
	up, down                int // endpoints
	requests, errors, ruled uint64
	active                  map[lb.Protocol]uint64
	traffic                 map[lb.Protocol]lb.Traffic
	all                     lb.Traffic
}

func requestsOf(s *lb.ServiceStats) uint64 { return s.Connections }
func errorsOf(s *lb.ServiceStats) uint64   { return s.NoEndpoint + s.Refused }

func totals() []total {
	list := []total{
		{"", "active_conntrack_count", "gauge", "Connections that are tracked now.", func(s *sums) float64 { return float64(s.connections) }, nil},
		{"", "lb_rule_count", "gauge", "Services.", func(s *sums) float64 { return float64(s.services) }, nil},
		{"loxilb_requests_total", "total_requests", "counter", "Connections made to the services that there are.", func(s *sums) float64 { return float64(s.requests) }, nil},
		{"loxilb_service_requests_total", "total_requests_per_service", "counter", "Connections made to the service.", nil, requestsOf},
		{"loxilb_errors_total", "total_errors", "counter", "Packets that the services that there are have refused: no endpoint takes new connections, or the connection table is full.", func(s *sums) float64 { return float64(s.errors) }, nil},
		{"loxilb_service_errors_total", "total_errors_per_service", "counter", "Packets of the service refused, for either reason.", nil, errorsOf},
		{"loxilb_healthy_endpoints", "healthy_host_count", "gauge", "Endpoints that are up.", func(s *sums) float64 { return float64(s.up) }, nil},
		{"loxilb_unhealthy_endpoints", "unhealthy_host_count", "gauge", "Endpoints that are down.", func(s *sums) float64 { return float64(s.down) }, nil},
		{"loxilb_fw_drop_packets_total", "total_fw_drops", "counter", "Packets that firewall rules and lists of sources have dropped.", func(s *sums) float64 { return float64(s.ruled) }, nil},
		{"loxilb_processed_bytes_total", "processed_bytes", "counter", "Bytes of IP packets of the services that there are, in and out.", func(s *sums) float64 { return float64(s.all.Bytes) }, nil},
		{"loxilb_processed_packets_total", "processed_packets", "counter", "Packets of the services that there are, in and out.", func(s *sums) float64 { return float64(s.all.Packets) }, nil},
	}
	for _, p := range [...]lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
		name := p.String()
		list = append(list,
			total{"loxilb_active_flow_count_" + name, "active_flow_count_" + name, "gauge", "Connections of " + name + " services that are tracked now.", func(s *sums) float64 { return float64(s.active[p]) }, nil},
			total{"loxilb_processed_" + name + "_bytes_total", "processed_" + name + "_bytes", "counter", "Bytes of IP packets of " + name + " services, in and out.", func(s *sums) float64 { return float64(s.traffic[p].Bytes) }, nil},
			total{"loxilb_processed_" + name + "_packets_total", "", "counter", "Packets of " + name + " services, in and out.", func(s *sums) float64 { return float64(s.traffic[p].Packets) }, nil},
		)
	}
	return list
}

// sum adds up what is counted.
func sum(rows []row, src Source) *sums {
	s := &sums{services: len(rows), active: map[lb.Protocol]uint64{}, traffic: map[lb.Protocol]lb.Traffic{}}
	for i := range rows {
		stats, p := &rows[i].stats, rows[i].protocol
		s.requests += requestsOf(stats)
		s.errors += errorsOf(stats)
		s.active[p] += stats.Active
		t := lb.Traffic{Packets: stats.In.Packets + stats.Out.Packets, Bytes: stats.In.Bytes + stats.Out.Bytes}
		s.traffic[p] = lb.Traffic{Packets: s.traffic[p].Packets + t.Packets, Bytes: s.traffic[p].Bytes + t.Bytes}
		s.all = lb.Traffic{Packets: s.all.Packets + t.Packets, Bytes: s.all.Bytes + t.Bytes}
	}
	for e := range src.Endpoints {
		switch e.State {
		case lb.HealthUp:
			s.up++
		case lb.HealthDown:
			s.down++
		}
	}
	tracked, _ := src.Occupancy()
	s.connections = int(tracked)
	drops := src.Drops()
	s.ruled = drops["rule"] + drops["source-not-allowed"] + drops["source-denied"]
	return s
}

// writeTotals writes them in the text format.
func writeTotals(w *bufio.Writer, rows []row, src Source) error {
	s := sum(rows, src)
	for _, t := range totals() {
		for _, name := range [...]string{t.canonical, t.legacy} {
			if name == "" {
				continue
			}
			b := []byte("# HELP " + name + " " + t.help + "\n# TYPE " + name + " " + t.kind + "\n")
			if t.each == nil {
				b = append(strconv.AppendFloat(append(b, name+" "...), t.value(s), 'g', -1, 64), '\n')
			} else {
				for i := range rows {
					if rows[i].known {
						b = append(strconv.AppendUint(append(b, name+"{"+rows[i].labels+"} "...), t.each(&rows[i].stats), 10), '\n')
					}
				}
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}
