package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"loxilb/internal/desired"
	"loxilb/internal/status"
)

// collector reads what there is one of: the table, the revision, the drops.
type collector struct {
	store *desired.State
	src   Source

	services, endpoints                *prometheus.Desc
	revision, applySuccess, objects    *prometheus.Desc
	connections, connectionsMax, drops *prometheus.Desc
	challenged, answered, known        *prometheus.Desc
	halfOpen, halfOpenMax              *prometheus.Desc
	xdp, xdpForwarded, nextHopsFull    *prometheus.Desc
	idleTold, idleUntold               *prometheus.Desc
}

func newCollector(st *desired.State, src Source) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("loxilb_"+name, help, labels, nil)
	}
	return &collector{
		store: st, src: src,
		services:       desc("lb_rules", "Services."),
		endpoints:      desc("endpoints", "Endpoints of all services together."),
		revision:       desc("config_revision", "Revision of the desired state."),
		applySuccess:   desc("config_last_apply_success", "1 when no object is in state failed."),
		objects:        desc("objects", "Objects, by kind and by how far the data path has them as they should be: pending, applied, failed.", "kind", "state"),
		connections:    desc("active_conntrack_entries", "Connections that are tracked now."),
		connectionsMax: desc("conntrack_max_entries", "Connections that can be tracked."),
		drops:          desc("drops_total", "Packets dropped, by reason.", "reason"),
		challenged:     desc("syn_challenges_total", "SYNs of clients that were not known, and so were challenged."),
		answered:       desc("syn_challenges_answered_total", "Challenges that the client has answered."),
		known:          desc("known_clients", "Clients that have lately shown that they are where their packets say: addresses, of IPv6 networks of 64 bits."),
		halfOpen:       desc("half_open_connections", "Connections without a complete handshake (tcp), or whose client has not sent again after an answer (others).", "protocol"),
		halfOpenMax:    desc("half_open_max_connections", "Half-open connections, of each of both, beyond which clients that are not known are challenged or refused; 0: any number. A service may have half of it."),
		xdp:            desc("interface_xdp", "1 for an interface that the XDP program is attached to, by how: native or generic.", "interface", "mode"),
		xdpForwarded:   desc("xdp_forwarded_packets_total", "Packets of established connections that the XDP program has forwarded by itself."),
		nextHopsFull:   desc("next_hops_full_packets_total", "Packets whose next hop was looked up for them alone, as the table of next hops had no room."),
		idleTold:       desc("idle_resets_total", "Established TCP connections that were silent for their timeout and ended by RSTs to both ends, since the daemon began."),
		idleUntold:     desc("idle_silent_ends_total", "Those that ended in silence, as too many ended at once."),
	}
}

// Describe sends all descriptions.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.services, c.endpoints, c.revision, c.applySuccess, c.objects,
		c.connections, c.connectionsMax, c.drops, c.challenged, c.answered, c.known, c.halfOpen, c.halfOpenMax, c.xdp, c.xdpForwarded,
		c.nextHopsFull, c.idleTold, c.idleUntold,
	} {
		ch <- d
	}
}

// Collect reads the store and the data path.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	snap := c.store.Snapshot()
	gauge(c.services, float64(c.store.Services.Len(snap)))
	gauge(c.endpoints, float64(c.store.Services.Endpoints(snap)))
	gauge(c.revision, float64(snap.Revision()))
	failed := 0
	for kind, states := range c.src.Counts() {
		failed += states[status.Failed]
		for _, state := range []status.State{status.Pending, status.Applied, status.Failed} {
			ch <- prometheus.MustNewConstMetric(c.objects, prometheus.GaugeValue, float64(states[state]), kind, string(state))
		}
	}
	gauge(c.applySuccess, truth(failed == 0))
	used, limit := c.src.Occupancy()
	gauge(c.connections, float64(used))
	gauge(c.connectionsMax, float64(limit))
	for reason, n := range c.src.Drops() {
		ch <- prometheus.MustNewConstMetric(c.drops, prometheus.CounterValue, float64(n), reason)
	}
	pressure := c.src.Pressure()
	ch <- prometheus.MustNewConstMetric(c.challenged, prometheus.CounterValue, float64(pressure.Challenged))
	ch <- prometheus.MustNewConstMetric(c.answered, prometheus.CounterValue, float64(pressure.Answered))
	gauge(c.known, float64(pressure.KnownClients))
	ch <- prometheus.MustNewConstMetric(c.halfOpen, prometheus.GaugeValue, float64(pressure.HalfOpenTCP), "tcp")
	ch <- prometheus.MustNewConstMetric(c.halfOpen, prometheus.GaugeValue, float64(pressure.HalfOpenOthers), "others")
	gauge(c.halfOpenMax, float64(pressure.HalfOpenMax))
	interfaces, mode, forwarded := c.src.XDP()
	for _, name := range interfaces {
		ch <- prometheus.MustNewConstMetric(c.xdp, prometheus.GaugeValue, 1, name, mode)
	}
	ch <- prometheus.MustNewConstMetric(c.xdpForwarded, prometheus.CounterValue, float64(forwarded))
	ch <- prometheus.MustNewConstMetric(c.nextHopsFull, prometheus.CounterValue, float64(c.src.NextHopsFull()))
	idle := c.src.IdleEnds()
	ch <- prometheus.MustNewConstMetric(c.idleTold, prometheus.CounterValue, float64(idle.Told))
	ch <- prometheus.MustNewConstMetric(c.idleUntold, prometheus.CounterValue, float64(idle.Untold))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
