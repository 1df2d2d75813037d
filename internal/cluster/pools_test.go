package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// heapBytes returns the bytes in use on the heap.
func heapBytes() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestQueueMemory checks that what waits for a peer costs 8 MiB of memory, not of records: a node
// with few connections has a chunk for each.
func TestQueueMemory(t *testing.T) {
	before := heapBytes()
	q := newQueue()
	most := 0
	for i := range 400_000 {
		for _, c := range chunksOf([]report.ConnectionCopy{connection(i)}, true) {
			q.put(c)
		}
		if i%10_000 == 0 {
			most = max(most, heapBytes()-before)
		}
	}
	if limit := MaxQueue + MaxQueue/4; most > limit || most < MaxQueue/4 {
		t.Errorf("the queue takes %d bytes, want at most %d", most, limit)
	}
	if _, stale := q.take(); !stale {
		t.Error("the queue has taken 400,000 records")
	}
}

// TestParkedPlaces checks that records which are being tried again keep their places, and that a
// node with other services leaves places to the others.
func TestParkedPlaces(t *testing.T) {
	t.Parallel()
	var p parked[int]
	bad, good := &source{}, &source{}
	for range 20 {
		for i := range 2 * maxParked {
			p.add(bad, i)
		}
		p.putBack(p.take())
		for i := range 2 * maxParked {
			p.add(bad, i)
		}
		list := p.take()
		for i := range 2 * maxParked {
			p.add(bad, i)
		}
		p.putBack(list)
		if len(p.list) > maxParked/2 {
			t.Fatalf("a node has parked %d records, of at most %d", len(p.list), maxParked/2)
		}
	}
	for i := range 1000 {
		if !p.add(good, i) {
			t.Fatalf("another node cannot park record %d", i)
		}
	}
	p.take()
	p.putBack(nil)
	if !p.add(bad, 1) || len(p.byNode) != 1 {
		t.Error("the places of records that have left are not free")
	}
}

// TestManyServices checks that a node that shows endless services is disconnected, and that another
// one describes only some that differ.
func TestManyServices(t *testing.T) {
	t.Parallel()
	var s source
	var err error
	for i := 0; err == nil && i < maxServices; i++ {
		err = s.storeState(fmt.Appendf(nil, `{"services":{"%d%s":"x"}}`, i, strings.Repeat("n", 60_000)))
	}
	if err == nil || len(s.arriving) > servicesBytes/60_000 {
		t.Errorf("%d services with long names were accepted: %v", len(s.arriving), err)
	}
	other := map[string]string{}
	for i := range 10_000 {
		other[fmt.Sprint(i)] = "x"
	}
	count, list := differences(map[string]string{"0": "y", "own": "x"}, other)
	if count != 10_001 || len(list) != maxDifferences || list[0] != "0 has another mode, algorithm or other endpoints there" || list[1] != "1 is missing here" {
		t.Errorf("%d services differ: %q", count, list)
	}
}

// TestManyNames checks that a node with the key that connects by ever new names does not take the
// memory of another one.
func TestManyNames(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	node, _ := all.start(0, newTable(), nil)
	refused := ""
	for i := range maxSources + 2 {
		c, answer := all.connectAsNodeFrom(t, "127.0.0.9", fmt.Sprintf(`{"version":2,"oldest":1,"node":"evil","self":-1,"boot":"%d","seed":%q,"slots":509}`, i, transport.Fingerprint(0)))
		if strings.Contains(answer, `"refused"`) {
			refused = answer
			break
		}
		if _, err := c.Write(ping()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the node has left", func() bool {
			node.mu.Lock()
			defer node.mu.Unlock()
			s := node.sources["evil"]
			if s == nil {
				return false
			}
			node.sources[fmt.Sprint("evil", i)] = s // as if it had this name: certificates of the test are for one
			delete(node.sources, "evil")
			return true
		})
	}
	if !strings.Contains(refused, "exchanges connections with 64 other nodes") {
		t.Errorf("the last one gets %q", refused)
	}
	all.start(1, newTable(), nil)
	eventually(t, "a configured node is refused", func() bool {
		return isUp(node) || len(node.Status().Peers) > 1 && node.Status().Peers[len(node.Status().Peers)-1].State == report.PeerUp
	})
}

// TestLostWhileStopped checks that copies that were lost while the process was stopped are found:
// the scan reaches back to when the ring was read before.
func TestLostWhileStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTable()
		n := &Node{Config: Config{Table: f, Log: slog.New(slog.DiscardHandler)}}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.watch(ctx) })
		f.open(0, 1, false)
		time.Sleep(time.Hour) // the process is stopped
		f.open(1, 2, true)
		time.Sleep(2 * lostEvery)
		synctest.Wait()
		f.mu.Lock()
		if f.scanned < time.Hour || f.scanned > time.Hour+time.Minute {
			t.Errorf("the scan reaches back %v", f.scanned)
		}
		f.mu.Unlock()
		cancel()
		running.Wait()
	})
}

// TestNeverReads checks that a peer that accepts connections, and then reads nothing or one byte
// each second, holds up no other node, and is given up.
func TestNeverReads(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 3)
	tables := []*table{newTable(), newTable()}
	tables[0].open(0, 50_000, true)
	for i, f := range tables {
		all.start(i, f, nil)
	}
	greeting := fmt.Sprintf(`{"version":2,"oldest":1,"node":"evil","self":-1,"boot":"x","seed":%q,"slots":509,"connections":50000}`, transport.Fingerprint(0))
	c := all.connectAsNode(t, greeting)
	givenUp := make(chan struct{})
	go func() { // it sends without end, and reads nothing
		defer close(givenUp)
		for {
			if _, err := c.Write(binary.BigEndian.AppendUint32(nil, 5<<24)); err != nil {
				return
			}
		}
	}()
	slow := all.connectAsNode(t, greeting)
	go func() {
		one := make([]byte, 1)
		for {
			if _, err := slow.Read(one); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	eventually(t, "the nodes do not exchange connections", func() bool { return tables[1].len() >= 50_000 })
	select {
	case <-givenUp:
	case <-time.After(testTimeout):
		t.Error("the node that reads nothing is still connected")
	}
}
