package metrics

import (
	"cmp"
	"maps"
	"slices"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Pools of source ports have series if at least minPortsUsed of their ports are in use: the
// maxPortPools with the most ports.
const (
	minPortsUsed = 1000
	maxPortPools = 100
)

// tableFamilies returns the metrics of the connection table, and of its protection.
func tableFamilies() []family {
	return []family{
		number("loxilb_connections", Gauge, "Connections that are tracked now.", func(v *view) float64 { return float64(v.tracked) }),
		number("loxilb_connections_max", Gauge, "Connections that can be tracked.", func(v *view) float64 { return float64(v.limit) }),
		{Metric{"loxilb_connections_peak", Gauge, nil, "Highest number of tracked connections since the daemon started, read every 5 s.", Always}, func(v *view, p *page) {
			if v.Peaks != nil {
				p.add(float64(v.Peaks.Table()))
			}
		}},
		{Metric{"loxilb_drops_total", Counter, []string{"reason"}, "Packets dropped, by reason.", Always}, func(v *view, p *page) {
			for _, reason := range sorted(v.drops) {
				p.add(float64(v.drops[reason]), reason)
			}
		}},
		{Metric{"loxilb_drop_bytes_total", Counter, []string{"reason"}, "Bytes of the IP packets dropped, by reason.", Always}, func(v *view, p *page) {
			bytes := v.src.DropBytes()
			for _, reason := range sorted(bytes) {
				p.add(float64(bytes[reason]), reason)
			}
		}},
		number("loxilb_syn_challenges_total", Counter, "Challenged SYNs of unknown clients.", func(v *view) float64 { return float64(v.pressure.Challenged) }),
		number("loxilb_syn_challenges_answered_total", Counter, "Challenges that the client has answered.", func(v *view) float64 { return float64(v.pressure.Answered) }),
		number("loxilb_known_clients", Gauge, "Known clients: IPv4 addresses, and IPv6 networks of 64 bits, that have recently proven not to be forged.", func(v *view) float64 { return float64(v.pressure.KnownClients) }),
		{Metric{"loxilb_half_open_connections", Gauge, []string{"protocol"}, "Half-open connections: without a complete handshake (tcp), or whose client has sent nothing since the first answer (others).", Always},
			func(v *view, p *page) {
				p.add(float64(v.pressure.HalfOpenTCP), "tcp")
				p.add(float64(v.pressure.HalfOpenOthers), "others")
			}},
		number("loxilb_half_open_max_connections", Gauge, "Limit of half-open connections, for tcp and others each; beyond it, unknown clients are challenged or refused. A service may use half of it; 0: unlimited.",
			func(v *view) float64 { return float64(v.pressure.HalfOpenMax) }),
		{Metric{"loxilb_snat_ports_used", Gauge, []string{"source", "endpoint", "protocol"}, "Source ports of a local address that are in use, or in quarantine, towards an endpoint: for the 100 pairs with the most ports, if at least 1,000.", Always},
			func(v *view, p *page) {
				for _, one := range v.ports {
					p.add(float64(one.Used), one.Source.String(), one.Endpoint.String(), one.Protocol.String())
				}
			}},
		{Metric{"loxilb_snat_ports_max", Gauge, []string{"source", "endpoint", "protocol"},
			"Source ports that each of these pairs has; the last eighth is reserved for known clients.", Always},
			func(v *view, p *page) {
				for _, one := range v.ports {
					p.add(float64(one.Max), one.Source.String(), one.Endpoint.String(), one.Protocol.String())
				}
			}},
		number("loxilb_snat_ports_short", Gauge, "1 while any pair has only its last eighth of source ports left, "+
			"and for 12 s after: clients that are not known are challenged or refused.",
			func(v *view) float64 {
				if v.pressure.PortsShort {
					return 1
				}
				return 0
			}),
		number("loxilb_sweep_visited_total", Counter, "Entries of the connection table that sweeps have visited.", func(v *view) float64 { return float64(v.src.Sweeps().Visited) }),
		number("loxilb_sweep_ended_total", Counter, "Expired connections that sweeps have removed.", func(v *view) float64 { return float64(v.src.Sweeps().Ended) }),
		number("loxilb_sweep_seconds", Gauge, "CPU time of the last sweep of the connection table.", func(v *view) float64 { return v.src.Sweeps().Last.Seconds() }),
		{Metric{"loxilb_interface_xdp", Gauge, []string{"interface", "mode"}, "1 for each interface with the XDP program, by mode: native or generic.", Always}, func(v *view, p *page) {
			interfaces, mode, _ := v.src.XDP()
			for _, name := range interfaces {
				p.add(1, name, mode)
			}
		}},
		number("loxilb_xdp_forwarded_packets_total", Counter, "Packets of established connections that the XDP program has forwarded by itself.", func(v *view) float64 {
			_, _, forwarded := v.src.XDP()
			return float64(forwarded)
		}),
		number("loxilb_next_hops_full_packets_total", Counter, "Packets that needed a route lookup of their own, because the table of next hops was full.", func(v *view) float64 { return float64(v.src.NextHopsFull()) }),
		number("loxilb_idle_resets_total", Counter, "Idle TCP connections that timed out and ended with RSTs to both ends, since the daemon started.", func(v *view) float64 { return float64(v.src.IdleEnds().Reset) }),
		number("loxilb_idle_silent_ends_total", Counter, "Idle TCP connections that ended without RSTs, because too many timed out at once.", func(v *view) float64 { return float64(v.src.IdleEnds().Silent) }),
	}
}

// trafficFamilies returns the metrics of the whole machine: of all present and former endpoints.
func trafficFamilies() []family {
	const of = " of all services, including deleted ones"
	list := []family{
		number("loxilb_connections_created_total", Counter, "Connections made"+of+".", func(v *view) float64 { return float64(v.machine.Connections) }),
		{Metric{"loxilb_packets_total", Counter, []string{"dir"}, "Packets" + of + ", in (from clients) and out (to clients).", Always}, func(v *view, p *page) {
			p.add(float64(v.machine.In.Packets), "in")
			p.add(float64(v.machine.Out.Packets), "out")
		}},
		{Metric{"loxilb_bytes_total", Counter, []string{"dir"}, "Bytes of IP packets" + of + ", in (from clients) and out (to clients).", Always}, func(v *view, p *page) {
			p.add(float64(v.machine.In.Bytes), "in")
			p.add(float64(v.machine.Out.Bytes), "out")
		}},
		{Metric{"loxilb_handshakes_total", Counter, []string{"event"}, "TCP handshakes with endpoints" + of + ": " + handshakeEvents, Always}, func(v *view, p *page) {
			eachHandshakeEvent(&v.machine.Handshakes, func(event string, n uint64) { p.add(float64(n), event) })
		}},
		{Metric{"loxilb_handshake_seconds", Histogram, nil, "Time from the first SYN of a connection to the endpoint's SYN+ACK" + of + ". " + handshakePrecision, Always}, func(v *view, p *page) {
			p.addHandshakes(&v.machine.Handshakes, v.jiffy)
		}},
	}
	return append(list, lifetimeFamilies()...)
}

// lifetimeFamilies describe ended connections. For averages per service, its counters suffice (a
// recording rule in deploy/prometheus computes them).
func lifetimeFamilies() []family {
	const those = "; TCP connections count only with a complete handshake. Series for sctp and icmp begin with their first connection."
	always := func(l *report.Lifetimes) bool { return l.Protocol == lb.TCP.String() || l.Protocol == lb.UDP.String() }
	return []family{
		{Metric{"loxilb_connection_duration_seconds", Histogram, []string{"protocol"}, "Time from the first to the last packet of ended connections" + those, Always}, func(v *view, p *page) {
			for i := range v.lifetimes {
				if one := &v.lifetimes[i]; always(one) || one.Life.Count() > 0 {
					p.addHistogram(&one.Life, lifeScale, one.Protocol)
				}
			}
		}},
		{Metric{"loxilb_connection_bytes", Histogram, []string{"protocol", "dir"}, "Bytes of IP packets of ended connections, in (from the client) and out (to the client, if replies pass through this machine)" + those, Always}, func(v *view, p *page) {
			for i := range v.lifetimes {
				if one := &v.lifetimes[i]; always(one) || one.In.Count()+one.Out.Count() > 0 {
					p.addHistogram(&one.In, bytesScale, one.Protocol, "in")
					p.addHistogram(&one.Out, bytesScale, one.Protocol, "out")
				}
			}
		}},
	}
}

// mapFamilies returns the metrics of the kernel's maps.
func mapFamilies() []family {
	of := []string{"map"}
	fillable := func(value func(*report.MapUse) uint64) func(*view, *page) {
		return func(v *view, p *page) {
			for i := range v.maps {
				if m := &v.maps[i]; m.Max > 0 {
					p.add(float64(value(m)), m.Name)
				}
			}
		}
	}
	return []family{
		{Metric{"loxilb_map_entries", Gauge, of, "Used rows of a map of the data path that packets or users fill (listed in loxilb-metrics(7)).", Always}, fillable(func(m *report.MapUse) uint64 { return m.Entries })},
		{Metric{"loxilb_map_max_entries", Gauge, of, "Rows that the map can have.", Always}, fillable(func(m *report.MapUse) uint64 { return m.Max })},
		{Metric{"loxilb_map_bytes", Gauge, of, "Kernel memory of the map, as reported by the kernel.", Always}, func(v *view, p *page) {
			for i := range v.maps {
				p.add(float64(v.maps[i].Bytes), v.maps[i].Name)
			}
		}},
	}
}

const (
	handshakeEvents = "SYNs of new connections (opened), replies (answered, refused by a RST, unreachable by ICMP), " +
		"SYNs repeated before an answer (repeated), connections that the endpoint reset before it sent data (reset)."
	handshakePrecision = "Resolution: one tick of the kernel's clock; the sum is an estimate from the buckets."
)

func eachHandshakeEvent(h *report.Handshakes, f func(event string, n uint64)) {
	f("opened", h.Opened)
	f("answered", h.AllAnswered())
	f("refused", h.Refused)
	f("unreachable", h.Unreachable)
	f("repeated", h.Repeated)
	f("reset", h.Reset)
}

// number returns a family of one series.
func number(name string, kind Type, help string, value func(*view) float64) family {
	return family{Metric{name, kind, nil, help, Always}, func(v *view, p *page) { p.add(value(v)) }}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
