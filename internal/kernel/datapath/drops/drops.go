// Package drops counts the packets that the packet path drops, by reason.
package drops

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/loader"
)

// Counters are those of the packet path.
type Counters struct{ shared *loader.Collection }

// New reads those of a collection.
func New(c *loader.Collection) *Counters { return &Counters{c} }

// Drops are the packets dropped so far, by reason; every reason is there.
func (d *Counters) Drops() (map[string]uint64, error) { return d.read(d.shared.Maps.Drops) }

// DropBytes are the bytes of their IP packets.
func (d *Counters) DropBytes() (map[string]uint64, error) { return d.read(d.shared.Maps.DropBytes) }

func (d *Counters) read(m *ebpf.Map) (map[string]uint64, error) {
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
