package metrics

import "slices"

// Type is Prometheus's type of a metric.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// When is the condition under which a metric exists.
type When int

// The conditions.
const (
	Always     When = iota
	OfService       // always; one for each service
	OfEndpoint      // with --metrics-detail=endpoint; one for each endpoint of each service, or each probe
	Native          // always, in the protobuf format alone: text has no native histograms
	Contract        // with --compat: a name of the existing loxilb
	Former          // always, until the next release; then with --compat alone
)

// Metric describes one metric.
type Metric struct {
	Name   string
	Type   Type
	Labels []string
	Help   string
	When   When
}

// Catalog returns every metric except those of the client library, in the order of output.
func Catalog() []Metric {
	list := requestMetrics()
	for _, f := range families() {
		list = append(list, f.Metric)
	}
	return list
}

// family is a metric and how its series are read.
type family struct {
	Metric
	series func(v *view, out *page)
}

// families returns all metric families.
func families() []family {
	return slices.Concat(daemonFamilies(), ownerFamilies(), machineFamilies(), tableFamilies(), mapFamilies(), mobileFamilies(), ftpFamilies(), trafficFamilies(), serviceFamilies(), endpointFamilies(),
		healthFamilies(), drainFamilies(), bgpFamilies(), bfdFamilies(), clusterFamilies(), storeFamilies(), ruleFamilies(), contractFamilies(), formerFamilies())
}

// includes reports whether a page shows a metric.
func (o Options) includes(m *Metric, text bool) bool {
	switch m.When {
	case OfEndpoint:
		return o.Endpoints
	case Native:
		return !text
	case Contract:
		return o.Compat
	}
	return true
}
