package observe

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/loader"
)

// DropCounters count the packets that the packet path drops, by reason.
type DropCounters struct{ shared *loader.Collection }

// NewDropCounters reads the counters of a collection.
func NewDropCounters(c *loader.Collection) *DropCounters { return &DropCounters{c} }

// Drops returns the packets dropped so far, by reason, including reasons without any.
func (d *DropCounters) Drops() (map[string]uint64, error) { return d.read(d.shared.Maps.Drops) }

// DropBytes returns the bytes of dropped IP packets, by reason.
func (d *DropCounters) DropBytes() (map[string]uint64, error) { return d.read(d.shared.Maps.DropBytes) }

func (d *DropCounters) read(m *ebpf.Map) (map[string]uint64, error) {
	reasons := d.shared.DropReasons()
	out := make(map[string]uint64, len(reasons))
	for reason, name := range reasons {
		var perCPU []uint64
		if err := m.Lookup(reason, &perCPU); err != nil {
			return nil, fmt.Errorf("read drops: %w", err)
		}
		for _, n := range perCPU {
			out[name] += n
		}
		if _, ok := out[name]; !ok {
			out[name] = 0
		}
	}
	return out, nil
}
