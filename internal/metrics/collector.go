package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// collector reads everything anew on each scrape.
type collector struct {
	store *store.Store
	src   Source

	services, endpoints                     *prometheus.Desc
	revision, appliedRevision, applySuccess *prometheus.Desc
	connections, connectionsMax, drops      *prometheus.Desc
	service, endpoint                       traffic
	refused, weight                         *prometheus.Desc
}

// traffic are the series that services and endpoints share.
type traffic struct{ active, total, packets, bytes *prometheus.Desc }

func newCollector(st *store.Store, src Source) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("loxilb_"+name, help, labels, nil)
	}
	flow := func(thing string, labels ...string) traffic {
		direction := append(append([]string(nil), labels...), "direction")
		return traffic{
			active:  desc(thing+"_connections_active", "Connections of the "+thing+" that are tracked now.", labels...),
			total:   desc(thing+"_connections_total", "Connections made to the "+thing+".", labels...),
			packets: desc(thing+"_traffic_packets_total", "Packets of the "+thing+", in (from clients) and out (to clients).", direction...),
			bytes:   desc(thing+"_traffic_bytes_total", "Bytes of IP packets of the "+thing+", in (from clients) and out (to clients).", direction...),
		}
	}
	return &collector{
		store: st, src: src,
		services:        desc("lb_rules", "Services."),
		endpoints:       desc("endpoints", "Endpoints of all services together."),
		revision:        desc("config_revision", "Revision of the desired state."),
		appliedRevision: desc("config_applied_revision", "Last revision of the desired state that is in the data path."),
		applySuccess:    desc("config_last_apply_success", "1 when the data path took what it was last given."),
		connections:     desc("active_conntrack_entries", "Connections that are tracked now."),
		connectionsMax:  desc("conntrack_max_entries", "Connections that can be tracked."),
		drops:           desc("drops_total", "Packets dropped, by reason.", "reason"),
		service:         flow("service", "service", "name"),
		endpoint:        flow("endpoint", "service", "name", "endpoint"),
		refused:         desc("service_refused_packets_total", "Packets of the service refused: no endpoint takes new connections, or the connection table is full.", "service", "name", "reason"),
		weight:          desc("endpoint_weight", "Weight of the endpoint; 0 takes no new connection.", "service", "name", "endpoint"),
	}
}

// Describe sends all descriptions.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.services, c.endpoints, c.revision, c.appliedRevision, c.applySuccess,
		c.connections, c.connectionsMax, c.drops,
		c.service.active, c.service.total, c.service.packets, c.service.bytes,
		c.endpoint.active, c.endpoint.total, c.endpoint.packets, c.endpoint.bytes,
		c.refused, c.weight,
	} {
		ch <- d
	}
}

// Collect reads the store and the data path.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	snap := c.store.Snapshot()
	gauge(ch, c.services, float64(snap.Len()))
	gauge(ch, c.endpoints, float64(snap.Endpoints()))
	gauge(ch, c.revision, float64(snap.Revision()))
	applied, err := c.src.Applied()
	gauge(ch, c.appliedRevision, float64(applied))
	gauge(ch, c.applySuccess, truth(err == nil))
	used, limit := c.src.Occupancy()
	gauge(ch, c.connections, float64(used))
	gauge(ch, c.connectionsMax, float64(limit))
	for reason, n := range c.src.Drops() {
		counter(ch, c.drops, n, reason)
	}
	for s := range snap.All() {
		c.collectService(ch, &s)
	}
}

func (c *collector) collectService(ch chan<- prometheus.Metric, s *lb.Service) {
	// The key is what tells series apart, for services may share a name.
	key, name := s.Key.String(), s.Name
	stats, ok := c.src.ServiceStats(s.Key)
	if ok {
		c.service.collect(ch, stats.EndpointStats, key, name)
		counter(ch, c.refused, stats.NoEndpoint, key, name, "no-endpoint")
		counter(ch, c.refused, stats.Refused, key, name, "table-full")
	}
	for i, e := range s.Endpoints {
		at := e.AddrPort().String()
		gauge(ch, c.weight, float64(e.Weight), key, name, at)
		if i < len(stats.Endpoints) {
			c.endpoint.collect(ch, stats.Endpoints[i], key, name, at)
		}
	}
}

func (t *traffic) collect(ch chan<- prometheus.Metric, s lb.EndpointStats, labels ...string) {
	gauge(ch, t.active, float64(s.Active), labels...)
	counter(ch, t.total, s.Connections, labels...)
	in := append(append(make([]string, 0, len(labels)+1), labels...), "in")
	out := append(append(make([]string, 0, len(labels)+1), labels...), "out")
	counter(ch, t.packets, s.In.Packets, in...)
	counter(ch, t.packets, s.Out.Packets, out...)
	counter(ch, t.bytes, s.In.Bytes, in...)
	counter(ch, t.bytes, s.Out.Bytes, out...)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	emit(ch, d, prometheus.GaugeValue, v, labels)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	emit(ch, d, prometheus.CounterValue, float64(v), labels)
}

// emit reports a metric that can't be made, a name that is no UTF-8 say, as such.
func emit(ch chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) {
	m, err := prometheus.NewConstMetric(d, kind, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	ch <- m
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
