package speaker

import (
	"time"

	"github.com/osrg/gobgp/v4/api"
)

const (
	// A count that takes cheapCount at most may be repeated immediately. After a longer one,
	// the next count waits for countRest times as long as it took, so the speaker can do other
	// work.
	cheapCount = 10 * time.Millisecond
	countRest  = 10
)

// sentCounts caches the numbers of routes announced to neighbors, where policies may reject some.
// For a count, gobgp applies all policies to all routes for each neighbor, so it is repeated only
// after a change.
type sentCounts struct {
	stale      bool
	next       time.Time      // earliest time of the next count
	byNeighbor map[string]int // by address
}

func (c *sentCounts) due(now time.Time) bool { return c.stale && !now.Before(c.next) }

// record takes the counts from peers that gobgp has listed.
func (c *sentCounts) record(peers map[string]*api.Peer, began time.Time) {
	c.stale, c.byNeighbor = false, make(map[string]int, len(peers))
	for addr, p := range peers {
		for _, f := range p.GetAfiSafis() {
			c.byNeighbor[addr] += int(f.GetState().GetAdvertised())
		}
	}
	now := time.Now()
	if took := now.Sub(began); took > cheapCount {
		c.next = now.Add(countRest * took)
	}
}
