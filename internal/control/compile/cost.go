package compile

import (
	"math/bits"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// Cost is the number of rows in the data path's maps that one service, or all services, need.
type Cost struct {
	Services  int // one for each of its VIPs
	Endpoints int
	Slots     int
	Sources   int // prefixes of allowed and denied sources
	Ranges    int // prefixes that make up its range of ports, for each of its VIPs
	SNAT      int // source addresses of the service
}

// CostOf returns the cost of a resolved service.
func CostOf(s *lb.Service) Cost {
	vips := 1 + len(s.AdditionalVIPs())
	return Cost{
		Services:  vips,
		Endpoints: len(s.Endpoints),
		Slots:     slotCount(s),
		Sources:   len(s.Sources) + len(s.Denied),
		Ranges:    vips * rangePrefixes(s.Key),
		SNAT:      len(s.SNAT),
	}
}

// add adds n times another cost.
func (c *Cost) add(n int, o Cost) {
	c.Services += n * o.Services
	c.Endpoints += n * o.Endpoints
	c.Slots += n * o.Slots
	c.Sources += n * o.Sources
	c.Ranges += n * o.Ranges
	c.SNAT += n * o.SNAT
}

// slotCount returns the number of slots of the service, without laying them out.
func slotCount(s *lb.Service) int {
	weights := make([]uint32, len(s.Endpoints))
	for i, e := range s.Endpoints {
		weights[i] = uint32(e.Weight)
	}
	up := countPositive(weights)
	layout := s.Algorithm.Layout()
	switch {
	case up == 0:
		return 0
	case layout == lb.LayoutConsistent:
		nodes := make([]MaglevNode, len(weights))
		for i, w := range weights {
			nodes[i].Weight = w
		}
		return MaglevSize(nodes)
	case layout == lb.LayoutWeighted, layout == lb.LayoutCompared && up > scanLimit:
		_, total := scale(weights)
		return min(total*fractionFactor(s), maxSlots)
	}
	return up * fractionFactor(s)
}

// fractionFactor returns the factor by which slow start enlarges a table, whose weights are in
// tenths then.
func fractionFactor(s *lb.Service) int {
	if s.SlowStart > 0 {
		return Tenths
	}
	return 1
}

// rangePrefixes returns the number of prefixes that make up a range of ports. Each is the largest
// that begins where the previous one ends.
func rangePrefixes(k lb.Key) (n int) {
	if k.PortMax == 0 {
		return 0
	}
	if k.AllPorts() {
		return 1
	}
	for first, end := uint32(k.Port), uint32(k.PortMax)+1; first < end; n++ {
		first += 1 << min(bits.TrailingZeros32(first), bits.Len32(end-first)-1)
	}
	return n
}

// limit is the available number of one kind of row.
type limit struct {
	what    string // unit of the number
	allowed int
	used    func(Cost) int
}

// limits returns the limits of the maps. A table of slots lies within one segment, so nearly half
// of a segment may be wasted. Only half of all slots can always be used.
func limits() []limit {
	return []limit{
		{"services, one for each VIP,", int(bpf.TcLimitMAX_SERVICES), func(c Cost) int { return c.Services }},
		{"endpoints, including those behind other services,", int(bpf.TcLimitMAX_ENDPOINTS), func(c Cost) int { return c.Endpoints }},
		{
			"slots in the tables that choose endpoints", int(bpf.TcLimitSLOT_SEGMENTS) * int(bpf.TcLimitSLOTS_PER_SEGMENT) / 2,
			func(c Cost) int { return c.Slots },
		},
		{"prefixes of sources", int(bpf.TcLimitMAX_SOURCES), func(c Cost) int { return c.Sources }},
		{"prefixes that ranges of ports are made of", int(bpf.TcLimitMAX_RANGE_PREFIXES), func(c Cost) int { return c.Ranges }},
		{"source addresses of services", int(bpf.TcLimitMAX_SERVICES), func(c Cost) int { return c.SNAT }},
	}
}
