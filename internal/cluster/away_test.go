package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// TestAway checks for how long ends are kept: until each node has had all connections for a while,
// and as long as a node is known that has not returned.
func TestAway(t *testing.T) {
	t.Parallel()
	up := func(since time.Duration) *peer {
		return &peer{
			queue: newQueue(), now: report.ClusterPeer{Node: "b", State: report.PeerUp, Since: time.Now().Add(-since)},
			sentTime: time.Now(),
		}
	}
	down := up(time.Hour)
	down.now.State = report.PeerDown
	own := up(0)
	own.isSelf = true
	reads, stuck := up(keepEnds), up(keepEnds)
	reads.marks = []mark{{1, time.Now().Add(-keepEnds / 2)}}
	stuck.sentTime = time.Now().Add(-keepEnds / 2)
	for !stuck.queue.isStale() {
		stuck.queue.put(chunk{data: make([]byte, transport.MaxFrame)})
	}
	stuck.sentAll() // the peer is about to get a full copy
	behind := up(keepEnds)
	behind.sentTime = time.Now().Add(-keepEnds / 2)
	behind.queue.put(chunk{data: make([]byte, transport.MaxFrame)})
	behind.sentAll()
	here, left := &source{complete: true}, &source{}
	for name, c := range map[string]struct {
		peers   []*peer
		sources map[string]*source
		want    bool
	}{
		"alone":                    {[]*peer{own}, nil, false},
		"here":                     {[]*peer{own, up(keepEnds)}, map[string]*source{"b": here}, false},
		"just connected":           {[]*peer{up(keepEnds / 2)}, map[string]*source{"b": here}, true},
		"down":                     {[]*peer{down}, map[string]*source{"b": here}, true},
		"reads slowly":             {[]*peer{reads}, map[string]*source{"b": here}, true},
		"records wait at a ping":   {[]*peer{behind}, map[string]*source{"b": here}, true},
		"records were dropped":     {[]*peer{stuck}, map[string]*source{"b": here}, true},
		"sends nothing":            {[]*peer{up(keepEnds)}, nil, true},
		"has not sent all":         {[]*peer{up(keepEnds)}, map[string]*source{"b": left}, true},
		"returned, not found yet":  {[]*peer{up(keepEnds)}, map[string]*source{"b": here, "c": here}, true},
		"gone from the name's set": {[]*peer{up(keepEnds)}, map[string]*source{"b": here, "c": left}, true},
	} {
		n := &Node{peers: c.peers, sources: c.sources}
		if got := n.isAnyAway(); got != c.want {
			t.Errorf("%s: a node is away: %v", name, got)
		}
	}
}

// TestSendQueued checks that a peer counts as late from the time at which its queue was taken,
// since records waited until then.
func TestSendQueued(t *testing.T) {
	t.Parallel()
	p, at := &peer{queue: newQueue()}, time.Now().Add(-keepEnds/3+time.Second)
	if err := p.sendQueued(nil, nil, at); err != nil || p.isLate() || !p.sentTime.Equal(at) {
		t.Errorf("records have waited since %v, want %v: %v", p.sentTime, at, err)
	}
}

// TestDeparted checks that ends are kept for a node that its name no longer leads to, as long as it
// may have the connections, and that no more nodes are remembered than may connect.
func TestDeparted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const goneTime = time.Minute
		n := &Node{Config: Config{goneTime: goneTime}, sources: map[string]*source{}, departed: map[string]time.Time{}}
		for i := range maxSources + 1 {
			n.sources[fmt.Sprint(i)] = &source{complete: true, since: time.Now()}
			time.Sleep(time.Second)
		}
		time.Sleep(goneTime)
		n.forgetSources()
		if _, first := n.departed["0"]; len(n.sources) != 0 || len(n.departed) != maxSources || first || !n.isAnyAway() {
			t.Errorf("%d nodes are known, and %d former ones are away: %v", len(n.sources), len(n.departed), n.isAnyAway())
		}
		time.Sleep(departedEnds)
		if n.isAnyAway() {
			t.Error("ends are kept for nodes that have gone for good")
		}
	})
}
