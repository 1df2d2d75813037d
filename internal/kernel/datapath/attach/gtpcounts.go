package attach

import (
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/pins"
)

// gtpCounts is the map of packets by outcome. It is pinned, so counts outlive programs and daemon.
const gtpCounts = "gtp_counts"

// pinCounts makes the programs adopt the counts of an earlier process.
func (g *GTP) pinCounts(spec *ebpf.CollectionSpec, opts *ebpf.CollectionOptions) error {
	if !g.shared.Pinned() {
		return nil
	}
	m := spec.Maps[gtpCounts]
	m.Pinning, opts.Maps.PinPath = ebpf.PinByName, g.shared.MapFolder()
	if err := pins.DropOtherLayout(g.shared.PinDir, gtpCounts, m); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return pins.RecordLayouts(g.shared.PinDir, map[string]*ebpf.MapSpec{gtpCounts: m})
}

// GTPCounts returns the number of packets by outcome: taken out of a tunnel, or put into one
// (sent); left in the tunnel, as the source is not its user (forged); sent to a user without a
// tunnel (routed); balanced by tunnel (balanced); dropped (unclassified, congestion, failed). Empty
// before the first session or service.
func (g *GTP) GTPCounts() (map[string]uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts()
}

func (g *GTP) counts() (map[string]uint64, error) {
	names := [...]string{"taken", "forged", "sent", "unclassified", "congestion", "failed", "routed", "balanced"}
	out := make(map[string]uint64, len(names))
	if g.objects == nil || !g.shared.Pinned() { // a pinned map has them
		maps.Copy(out, g.past)
	}
	if g.objects == nil {
		return out, nil
	}
	for i, name := range names {
		var each []uint64
		if err := g.objects.GtpCounts.Lookup(uint32(i), &each); err != nil {
			return nil, fmt.Errorf("read counts of GTP-U: %w", err)
		}
		for _, n := range each {
			out[name] += n
		}
	}
	return out, nil
}
