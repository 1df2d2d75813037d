package datapath

import (
	"context"
	"time"
)

// hints say what mends a drop that its owner can mend. Reasons without one are the sender's doing, and are
// logged for debugging only.
var hints = map[string]string{
	"no-endpoint":    "add an endpoint, or give one a weight above 0",
	"conntrack-full": "new connections are refused until old ones end; start with a larger --ct-max",
	"no-route":       "give this machine a route to the endpoint and to the client, which must not be this machine",
	"forwarding-off": "set net.ipv4.conf.lo.forwarding (and net.ipv6.conf.lo.forwarding) to 1",
	"route-encap":    "use a route without lightweight tunnel",
	"tuple-in-use":   "more endpoints, or fewer services in front of the same ones",
}

// LogDrops logs what was dropped, once a second at most for each reason, until ctx ends.
func (d *Datapath) LogDrops(ctx context.Context) {
	before, err := d.Drops()
	if err != nil {
		d.log.Error("drops cannot be read", "err", err)
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
			d.log.Error("drops cannot be read", "err", err)
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

func (d *Datapath) logDrop(reason string, packets uint64) {
	if hint, ok := hints[reason]; ok {
		d.log.Warn("packets dropped", "reason", reason, "packets", packets, "hint", hint)
		return
	}
	d.log.Debug("packets dropped", "reason", reason, "packets", packets)
}
