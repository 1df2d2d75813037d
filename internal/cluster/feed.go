package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/lb/report"
)

const (
	// refreshEvery is the interval of scans for closing connections, and for connections whose
	// copies would expire. The pause after a scan is at least refreshPause times its duration,
	// of which a third is CPU time: scans cost at most 3 % of a core.
	refreshEvery = 5 * time.Second
	refreshPause = 10
	// overlap is how far a scan looks back beyond its interval.
	overlap = time.Second
	// lostEvery is the interval of scans for copies that found the ring full.
	lostEvery = time.Second
	watchWait = time.Second
)

// broadcast queues copies of connections for all peers.
func (n *Node) broadcast(list []report.ConnectionCopy) {
	n.keepEnds(list)
	chunks := map[bool][]chunk{} // by whether they are packed
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		connected, packs := p.copyForm()
		if !connected {
			continue // a peer gets all connections when it connects
		}
		if chunks[packs] == nil {
			chunks[packs] = chunksOf(list, packs)
		}
		for _, c := range chunks[packs] {
			p.queue.put(c)
		}
	}
}

// copyForm reports whether the peer gets copies, and whether it reads packed ones.
func (p *peer) copyForm() (connected, packs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.State.Exchanges(), p.readsPacked
}

// isConnected reports whether the peer gets copies.
func (p *peer) isConnected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.State.Exchanges()
}

// anyConnected reports whether any peer gets copies.
func (n *Node) anyConnected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		if p.isConnected() {
			return true
		}
	}
	return false
}

// watch sends connections as they open and close, until ctx ends.
func (n *Node) watch(ctx context.Context) {
	var rescan sync.WaitGroup
	defer rescan.Wait()
	lost := make(chan time.Time, 1)
	rescan.Go(func() { n.findLost(ctx, lost) })
	defer close(lost)
	paced := &pace{yield: n.broadcast}
	defer paced.stop()
	for ctx.Err() == nil {
		total, before := n.lost.Load(), time.Now()
		recovered := time.AfterFunc(2*watchWait, func() { n.faults.set(noWatch, nil) })
		err := n.Table.WatchCopies(ctx, func(list []report.ConnectionCopy, more uint64) {
			if len(list) > 0 {
				paced.add(list)
			}
			since := before
			before = time.Now()
			if n.lost.Swap(total+more) == total+more {
				return
			}
			select {
			case lost <- since:
			default: // a scan is due already
			}
		})
		recovered.Stop()
		if ctx.Err() != nil {
			return
		}
		n.Log.Error("new connections are not sent to other nodes at once", "error", err)
		n.faults.set(noWatch, err)
		monotime.Sleep(ctx, watchWait)
	}
}

// findLost scans the table after each loss of copies. It receives the last time at which the ring
// was read without a loss, and sends the connections that have changed since then: the process may
// have been stopped for long.
func (n *Node) findLost(ctx context.Context, lost <-chan time.Time) {
	for since := range lost {
		if !monotime.Sleep(ctx, lostEvery) { // more are being lost
			return
		}
		n.scan(ctx, report.CopySelection{Since: time.Since(since) + overlap}, nil)
	}
}

// refresh sends connections again before their copies expire, until ctx ends.
func (n *Node) refresh(ctx context.Context) {
	before := time.Now()
	for wait := refreshEvery; monotime.Sleep(ctx, wait); {
		now := time.Now()
		if n.anyConnected() || n.isAnyAway() { // a node that is away misses ends
			n.scan(ctx, report.CopySelection{Since: now.Sub(before) + overlap, Due: true}, isOpen)
		}
		wait = max(refreshEvery, refreshPause*time.Since(now))
		before = now
	}
}

// isOpen reports whether a connection is not closed. A closed one needs no refresh: its last copy
// was sent when it closed.
func isOpen(c report.ConnectionCopy) bool { return !c.IsClosed() }

// scan sends the connections for which wanted returns true; nil: all.
func (n *Node) scan(ctx context.Context, what report.CopySelection, wanted func(report.ConnectionCopy) bool) {
	err := n.Table.ScanCopies(ctx, what, func(list []report.ConnectionCopy) error {
		if wanted != nil {
			list = slices.DeleteFunc(list, func(c report.ConnectionCopy) bool { return !wanted(c) })
		}
		n.broadcast(list)
		return nil
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		n.Log.Error("connections of other nodes are not refreshed", "error", err)
	}
	n.faults.set(noRefresh, err)
}
