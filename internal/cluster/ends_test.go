package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// TestMissedEnds checks that connections which have ended while a node was away end there, and do
// not return from there: neither connections of other nodes, nor its own, which have moved
// to others. An older node, which does not understand ends, still gets everything else.
func TestMissedEnds(t *testing.T) {
	t.Parallel()
	for _, features := range [][]transport.Feature{transport.Features(), {transport.FeatureState, transport.FeaturePacked}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			t.Parallel()
			all := newNodes(t, 3)
			one, two, third := newTable(), newTable(), newTable()
			first, _ := all.start(0, one, nil)
			all.start(2, third, nil)
			leaves, stop := all.start(1, two, nil)
			<-first.Joined()
			<-leaves.Joined()
			one.open(0, 10, false)
			two.open(10, 20, false)
			for _, f := range []*table{one, two, third} {
				eventually(t, "a node does not get all connections", func() bool { return f.len() == 20 })
			}
			stop()
			one.end(5, 15)
			eventually(t, "the third node does not get the ends", func() bool { return third.countOpen() == 10 })
			_, again := all.start(1, two, func(c *Config) { c.features = features })
			defer again()
			if !slices.Contains(features, transport.FeatureEnds) {
				one.open(20, 30, false)
				eventually(t, "the older node gets nothing", func() bool { return two.len() == 30 })
				return
			}
			for i, f := range []*table{one, two, third} {
				eventually(t, fmt.Sprintf("node %d still has connections that have ended", i), func() bool {
					return f.countOpen() == 10 && first.Status().Peers[0].State == report.PeerUp
				})
			}
		})
	}
}

// TestEndsBounded checks that ends take no more memory than they may, that the latest ones remain,
// and that they are forgotten once no node is away.
func TestEndsBounded(t *testing.T) {
	t.Parallel()
	var e ends
	const batches, batch = 4000, 100
	for i := range batches {
		list := make([]report.ConnectionCopy, batch)
		for j := range list {
			list[j] = connection(i*batch + j)
			list[j].Flags |= report.FlagsAcked
		}
		e.add(list)
	}
	e.add([]report.ConnectionCopy{connection(0)}) // it is open
	count, last := 0, report.ConnectionCopy{}
	for _, part := range e.all() {
		if len(part.data) > transport.MaxFrame {
			t.Fatalf("a frame of %d bytes", len(part.data))
		}
		list, err := decodeEnds(nil, part.data)
		if err != nil {
			t.Fatal(err)
		}
		if count += len(list); len(list) != part.count || !list[0].Late || !list[0].IsClosed() {
			t.Fatalf("%d ends of %d, the first one %+v", len(list), part.count, list[0])
		}
		last = list[len(list)-1]
	}
	if want := connection(batches*batch - 1).Client; last.Client != want {
		t.Errorf("the last end is of %s, want %s", last.Client, want)
	}
	if e.bytes > maxEnds || count < 200_000 || count >= batches*batch {
		t.Errorf("%d ends in %d bytes, want more in %d", count, e.bytes, maxEnds)
	}
	e.forget(0)
	if len(e.all()) != 0 || e.bytes != 0 {
		t.Errorf("%d parts and %d bytes remain", len(e.all()), e.bytes)
	}
}

// TestEndsWait checks that ends wait for no service: its connections are not here without it, and
// many ends would take the places of other records.
func TestEndsWait(t *testing.T) {
	t.Parallel()
	f, s, open, end := newTable(), &source{}, connection(0), connection(1)
	f.unknown[open.VIP], end.Late = true, true
	end.Flags |= report.FlagsAcked
	n := &Node{Config: Config{Table: f}, sources: map[string]*source{}}
	if err := n.apply(t.Context(), s, []report.ConnectionCopy{open, end}); err != nil || s.parked != 1 {
		t.Errorf("%d records wait for their service, want the open connection alone: %v", s.parked, err)
	}
}

// TestAway checks for how long ends are kept: until each node has had all connections for a while,
// and as long as a node is known that has not returned.
func TestAway(t *testing.T) {
	t.Parallel()
	up := func(since time.Duration) *peer {
		return &peer{queue: newQueue(), now: report.ClusterPeer{Node: "b", State: report.PeerUp, Since: time.Now().Add(-since)}}
	}
	down := up(time.Hour)
	down.now.State = report.PeerDown
	own := up(0)
	own.own = true
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
		"sends nothing":            {[]*peer{up(keepEnds)}, nil, true},
		"has not sent all":         {[]*peer{up(keepEnds)}, map[string]*source{"b": left}, true},
		"gone from the name's set": {[]*peer{up(keepEnds)}, map[string]*source{"b": here, "c": left}, true},
	} {
		n := &Node{peers: c.peers, sources: c.sources}
		if got := n.isAnyAway(); got != c.want {
			t.Errorf("%s: a node is away: %v", name, got)
		}
	}
}

// TestEndsCounted checks that ends without effect are not counted as records of earlier
// connections.
func TestEndsCounted(t *testing.T) {
	t.Parallel()
	s, absent := &source{}, connection(0)
	absent.Late, absent.Flags = true, absent.Flags|report.FlagsAcked
	n := &Node{Config: Config{Table: newTable()}}
	if err := n.apply(t.Context(), s, []report.ConnectionCopy{absent}); err != nil || s.results != [report.CopyResults]uint64{} || s.received != 1 {
		t.Errorf("the source is %+v: %v", s, err)
	}
}

// TestEndsTogether checks that ends which have occurred one by one are applied many at once, and
// that the other node is answered meanwhile, which would give this one up after 4 s.
func TestEndsTogether(t *testing.T) {
	t.Parallel()
	const count = 3*endsAtOnce + 1
	f := newTable()
	n := &Node{Config: Config{Table: f}}
	for i := range count {
		c := connection(i)
		c.Flags |= report.FlagsAcked
		n.ends.append(&c)
		n.ends.parts[i].began = time.Now().Add(-time.Hour)
	}
	f.open(0, count, false)
	answers := 0
	if err := n.applyOwnEnds(t.Context(), &source{}, func() error { answers++; return nil }); err != nil {
		t.Fatal(err)
	}
	if f.puts != 4 || answers != 4 || f.countOpen() != 0 {
		t.Errorf("%d calls, %d answers, %d connections are open", f.puts, answers, f.countOpen())
	}
}
