package loader

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/conntrack"
	"loxilb/internal/datapath/pins"
)

// tellLoss adds to the reason why the pinned maps cannot be adopted what it costs to start without them.
func (c *Collection) tellLoss(reason error) error {
	connections := "the connections that are tracked end"
	if n, err := c.pinnedConnections(); err == nil {
		connections = fmt.Sprintf("the %d connections that are tracked end", n)
	}
	return fmt.Errorf("%w; to start without them, by --end-connections, means that %s, counters begin at 0, and no client is known; or start the version that made them",
		reason, connections)
}

// pinnedConnections is how many there are, if their count is where this build looks for it.
func (c *Collection) pinnedConnections() (uint64, error) {
	spec, err := bpf.LoadTc()
	if err != nil {
		return 0, err
	}
	const state, counts = "table_states", "table_counts"
	err = pins.CheckLayouts(c.PinDir, map[string]*ebpf.MapSpec{state: spec.Maps[state], counts: spec.Maps[counts]})
	if err != nil {
		return 0, err
	}
	s, err := ebpf.LoadPinnedMap(filepath.Join(c.MapFolder(), state), nil)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	n, err := ebpf.LoadPinnedMap(filepath.Join(c.MapFolder(), counts), nil)
	if err != nil {
		return 0, err
	}
	defer n.Close()
	if s.ValueSize() != spec.Maps[state].ValueSize || n.ValueSize() != spec.Maps[counts].ValueSize {
		return 0, errors.New("of another size")
	}
	entries, err := conntrack.Count(s, n)
	return entries / conntrack.EntriesPerConnection, err
}
