// Package drops counts the packets that the packet path drops, by reason, and says what to do about them.
package drops

import (
	"context"
	"fmt"
	"time"

	"loxilb/internal/datapath/loader"
)

// hints say what the owner of this machine can do about a drop. Reasons without one are the sender's doing, and are
// logged for debugging only.
var hints = map[string]string{
	"no-endpoint":    "loxicmd get lb -o wide tells why no endpoint takes any: they are inactive, drained, or have weight 0",
	"conntrack-full": "new connections are refused until old ones end; start with a larger --ct-max",
	"no-route":       "loxicmd get status --failed names endpoints without a route; for clients see: ip route get ADDRESS",
	"forwarding-off": "set net.ipv4.conf.lo.forwarding (and net.ipv6.conf.lo.forwarding) to 1",
	"route-encap":    "use a route without lightweight tunnel",
	"tuple-in-use":   "more endpoints, or fewer services in front of the same ones",
}

// Counters are those of the packet path.
type Counters struct{ shared *loader.Collection }

// New reads those of a collection.
func New(c *loader.Collection) *Counters { return &Counters{c} }

// Drops are the packets dropped so far, by reason; every reason is there.
func (d *Counters) Drops() (map[string]uint64, error) {
	reasons := d.shared.DropReasons()
	out := make(map[string]uint64, len(reasons))
	for reason, name := range reasons {
		var perCPU []uint64
		if err := d.shared.Maps.Drops.Lookup(reason, &perCPU); err != nil {
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
	if hint, ok := hints[reason]; ok {
		d.shared.Log.Warn("packets dropped", "reason", reason, "packets", packets, "hint", hint)
		return
	}
	d.shared.Log.Debug("packets dropped", "reason", reason, "packets", packets)
}
