package speaker

import (
	"time"

	"github.com/osrg/gobgp/v4/api"
)

const (
	// cheapCount is how long a count may take to be repeated at any time. After a longer count, the
	// speaker is free for others for countRest times as long.
	cheapCount = 10 * time.Millisecond
	countRest  = 10
)

// sentCounts caches the numbers of routes announced to neighbors, where policies may reject some.
// For a count, gobgp applies all policies to all routes for each neighbor, so it is repeated only
// after a change.
type sentCounts struct {
	stale bool
	next  time.Time      // no count before
	of    map[string]int // by address of the neighbor
}

func (c *sentCounts) due(now time.Time) bool { return c.stale && !now.Before(c.next) }

// record takes the counts from peers that gobgp has listed.
func (c *sentCounts) record(peers map[string]*api.Peer, began time.Time) {
	c.stale, c.of = false, make(map[string]int, len(peers))
	for addr, p := range peers {
		for _, f := range p.GetAfiSafis() {
			c.of[addr] += int(f.GetState().GetAdvertised())
		}
	}
	now := time.Now()
	if took := now.Sub(began); took > cheapCount {
		c.next = now.Add(countRest * took)
	}
}
