package metrics

import (
	"cmp"
	"maps"
	"slices"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Source ports have series for pairs of addresses with many ports in use, as far as there is room.
const (
	portsLeast = 1000
	portsPairs = 100
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
		number("loxilb_known_clients", Gauge, "Known clients, which have recently shown that their address is not forged: addresses, for IPv6 networks of 64 bits.", func(v *view) float64 { return float64(v.pressure.KnownClients) }),
		{Metric{"loxilb_half_open_connections", Gauge, []string{"protocol"}, "Connections without a complete handshake (tcp), or whose client has not sent again after an answer (others).", Always},
			func(v *view, p *page) {
				p.add(float64(v.pressure.HalfOpenTCP), "tcp")
				p.add(float64(v.pressure.HalfOpenOthers), "others")
			}},
		number("loxilb_half_open_max_connections", Gauge, "Limit of half-open connections, for each of both, beyond which unknown clients are challenged or refused; 0: unlimited. A service may have half of it.",
			func(v *view) float64 { return float64(v.pressure.HalfOpenMax) }),
		{Metric{"loxilb_snat_ports_used", Gauge, []string{"source", "endpoint", "protocol"}, "Source ports in use, or at rest, of an address of ours towards an endpoint; of the 100 pairs that have the most, if they have 1,000 or more.", Always},
			func(v *view, p *page) {
				for _, one := range v.ports {
					p.add(float64(one.Used), one.Source.String(), one.Endpoint.String(), one.Protocol.String())
				}
			}},
		{Metric{"loxilb_snat_ports_max", Gauge, []string{"source", "endpoint", "protocol"},
			"Source ports that each of these pairs has; the last eighth is for known clients.", Always},
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
		{Metric{"loxilb_interface_xdp", Gauge, []string{"interface", "mode"}, "1 for an interface that the XDP program is attached to, by how: native or generic.", Always}, func(v *view, p *page) {
			interfaces, mode, _ := v.src.XDP()
			for _, name := range interfaces {
				p.add(1, name, mode)
			}
		}},
		number("loxilb_xdp_forwarded_packets_total", Counter, "Packets of established connections that the XDP program has forwarded by itself.", func(v *view) float64 {
			_, _, forwarded := v.src.XDP()
			return float64(forwarded)
		}),
		number("loxilb_next_hops_full_packets_total", Counter, "Packets whose next hop was looked up for them alone, as the table of next hops had no room.", func(v *view) float64 { return float64(v.src.NextHopsFull()) }),
		number("loxilb_idle_resets_total", Counter, "Established TCP connections that were silent for their timeout and ended by RSTs to both ends, since the daemon began.", func(v *view) float64 { return float64(v.src.IdleEnds().Told) }),
		number("loxilb_idle_silent_ends_total", Counter, "Connections that ended silently, as too many ended at once.", func(v *view) float64 { return float64(v.src.IdleEnds().Untold) }),
	}
}

// trafficFamilies returns the metrics of the whole machine: of all present and former endpoints.
func trafficFamilies() []family {
	const of = " of all services, those that are deleted included"
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
	const those = " that are over; of TCP, of those whose handshake was complete. sctp and icmp from their first one on."
	always := func(l *report.Lifetimes) bool { return l.Protocol == lb.TCP.String() || l.Protocol == lb.UDP.String() }
	return []family{
		{Metric{"loxilb_connection_duration_seconds", Histogram, []string{"protocol"}, "Time from the first packet to the last one, of connections" + those, Always}, func(v *view, p *page) {
			for i := range v.lifetimes {
				if one := &v.lifetimes[i]; always(one) || one.Life.Count() > 0 {
					p.addHistogram(&one.Life, lifeScale, one.Protocol)
				}
			}
		}},
		{Metric{"loxilb_connection_bytes", Histogram, []string{"protocol", "dir"}, "Bytes of IP packets, in (from the client) and out (to the client, where answers pass by here), of connections" + those, Always}, func(v *view, p *page) {
			for i := range v.lifetimes {
				if one := &v.lifetimes[i]; always(one) || one.In.Count()+one.Out.Count() > 0 {
					p.addHistogram(&one.In, bytesScale, one.Protocol, "in")
					p.addHistogram(&one.Out, bytesScale, one.Protocol, "out")
				}
			}
		}},
	}
}

// mapFamilies are of the kernel's maps.
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
	handshakeEvents = "SYNs of new connections (opened), what came back (answered, refused by a RST, unreachable by ICMP), " +
		"SYNs that came again before an answer (repeated), connections that the endpoint reset before it sent data (reset)."
	handshakePrecision = "To one tick of the kernel's clock; the sum is an estimate from the buckets."
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
