package cluster

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// TestStopped checks that records which have waited for a stopped process are as old as that: they
// could otherwise replace connections that the kernel has opened meanwhile.
func TestStopped(t *testing.T) {
	t.Parallel()
	const stale = 300 * time.Millisecond
	all, f := newNodes(t, 1), newTable()
	all.start(0, f, func(c *Config) { c.staleTime = stale })
	frame := func(i int) []byte {
		c := connection(i)
		b := record.Append(nil, &c)
		return append(binary.BigEndian.AppendUint32(nil, 3<<24|uint32(len(b))), b...)
	}
	rows := func() map[int]report.ConnectionCopy {
		f.mu.Lock()
		defer f.mu.Unlock()
		found := map[int]report.ConnectionCopy{}
		for i := range 3 {
			if c, ok := f.rows[connection(i).Client]; ok {
				found[i] = c
			}
		}
		return found
	}
	c := all.connectAsNode(t, fmt.Sprintf(`{"version":2,"oldest":1,"node":"evil","self":-1,"boot":"x","seed":%q,"slots":509}`, transport.Fingerprint(0)))
	_, _ = c.Write(frame(0))
	eventually(t, "the first record is not inserted", func() bool { return len(rows()) == 1 })
	release := make(chan struct{})
	f.mu.Lock()
	f.block = release
	f.mu.Unlock()
	began := time.Now()
	_, _ = c.Write(slices.Concat(frame(1), ping(), frame(2)))
	eventually(t, "time passes", func() bool { return time.Since(began) > 4*stale })
	f.mu.Lock()
	f.block = nil
	f.mu.Unlock()
	close(release)
	eventually(t, "the last record is not inserted", func() bool { return len(rows()) == 3 })
	if got := rows(); got[2].Idle < 2*stale || got[0].Idle >= got[2].Idle {
		t.Errorf("the first record is %v old, and the one that has waited %v", got[0].Idle, got[2].Idle)
	}
}

// TestStaleness checks that records are old while those sent to a stopped process may still arrive,
// and no longer than that if the connection survives.
func TestStaleness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		age := staleness{answered: time.Now(), giveUpTime: transport.MaxSilence}
		late := transport.MaxSilence + time.Second
		time.Sleep(late)
		want := func(when string, d time.Duration) {
			t.Helper()
			if got := age.now(); got != d {
				t.Errorf("%s, records are %v old, not %v", when, got, d)
			}
			age.answer()
		}
		want("after the process has stopped", late)
		time.Sleep(transport.PingEvery)
		want("at the next frame", late)
		for range 2 {
			time.Sleep(suspectTime/2 + 1)
			age.answered = time.Now()
		}
		want("once it has read all of that", 0)
	})
}

// TestReturned checks that a node which began with a new table gets its own connections back once:
// later, connections that ended while it was cut off would return.
func TestReturned(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	fresh, other := newTable(), newTable()
	fresh.fresh = true
	other.open(0, 5, true)
	node, _ := all.start(0, fresh, nil)
	away, _ := all.start(1, other, nil)
	eventually(t, "the nodes do not find each other", func() bool { return isUp(node) && isUp(away) && fresh.len() == 5 })
	fresh.open(5, 10, false)
	eventually(t, "the other node does not get the connections", func() bool { return other.len() == 10 })
	fresh.mu.Lock()
	clear(fresh.rows)
	fresh.mu.Unlock()
	away.mu.Lock()
	for _, p := range away.peers {
		p.reconnect(errIsolated)
	}
	away.mu.Unlock()
	eventually(t, "the other node does not send all connections again", func() bool { return away.Status().Peers[0].BulkCopies == 2 })
	eventually(t, "its own connections do not arrive", func() bool { return fresh.len() >= 5 })
	if n := fresh.len(); n != 5 {
		t.Errorf("%d connections that have ended are back", n-5)
	}
}
