// Package drops counts the packets that the packet path drops, by reason.
package drops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/loader"
	"loxilb/internal/dropreason"
)

// ours are the reasons that the owner of this machine can do something about. The others are the sender's doing, or what somebody has configured, and
// are logged for debugging only.
func ours() []string {
	return []string{
		"no-endpoint", "conntrack-full", "no-route", "route-unreachable", "forwarding-off", "route-encap", "tuple-in-use", "snat-ports-exhausted", "dsr-routed",
	}
}

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

// LogDrops logs what was dropped, once a second at most for each reason, until ctx ends.
func (d *Counters) LogDrops(ctx context.Context) {
	before, err := d.Drops()
	if err != nil {
		d.shared.Log.Error("drops cannot be read", "error", err)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := d.Drops()
		if err != nil {
			d.shared.Log.Error("drops cannot be read", "error", err)
			continue
		}
		for reason, n := range now {
			if n -= before[reason]; n > 0 {
				d.logDrop(reason, n)
			}
		}
		before = now
	}
}

func (d *Counters) logDrop(reason string, packets uint64) {
	if slices.Contains(ours(), reason) {
		why, _ := dropreason.Of(reason)
		d.shared.Log.Warn("packets dropped", "reason", reason, "packets", packets, "hint", why.Remedy)
		return
	}
	d.shared.Log.Debug("packets dropped", "reason", reason, "packets", packets)
}
