package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"loxilb/internal/lb/report"
)

const (
	minRetry = 250 * time.Millisecond
	maxRetry = time.Second // tables are equal soon after a partition
	// maxRefusedRetry is the longest pause between attempts if one of two nodes refuses the
	// other: incompatible nodes stay so until their configuration changes.
	maxRefusedRetry = 5 * time.Second
	// selfRetryInterval is how often an address is tried that was this node's own, or another one
	// of a connected node: another node may have it by then.
	selfRetryInterval = 10 * time.Second
	// A connection that ends within shortTime is short. Only maxShort of them in a row are made
	// again at once: each one costs a copy of all connections. Further ones wait for shortWait,
	// so tables are equal within seconds after a partition.
	shortTime = 10 * time.Second
	maxShort  = 5
	shortWait = 2 * time.Second
)

// peer is an address that this node sends its connections to.
type peer struct {
	node     *Node
	address  string
	queue    *queue
	cancel   context.CancelFunc
	retryNow chan struct{} // an attempt is due at once
	rerouted chan struct{} // capacity 1: routers may have begun to send this node's packets to the peer

	mu          sync.Mutex
	abort       context.CancelFunc      // of the attempt to connect; nil: there is none
	dialed      time.Time               // when the attempt began
	end         context.CancelCauseFunc // of the connection; nil: there is none
	isSelf      bool                    // the address is this node's
	alias       bool                    // another address of a connected node
	shortRuns   int                     // number of short connections in a row
	boot        string                  // of the process that it is connected to
	connectedAt time.Time               // when the connection began
	readsPacked bool                    // the process understands packed records
	tried       bool
	absent      bool      // no node runs there, or it refuses this one
	serves      bool      // it announced its VIPs when it connected
	refused     time.Time // when a serving node at the address last refused this one
	proven      bool      // that node has an accepted certificate
	now         report.ClusterPeer
	marks       []mark    // sent, and not applied yet
	sent        uint64    // records over this connection
	sentTime    time.Time // all records of earlier times were sent
}

// run connects to the peer, and reconnects after failures, until ctx ends.
func (p *peer) run(ctx context.Context) {
	failures := 0 // in a row
	for ctx.Err() == nil {
		began := time.Now()
		err := p.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, context.Canceled) { // hurry has aborted the attempt
			p.failed(err)
		}
		failures++
		if time.Since(began) > maxRetry {
			failures = 0
		}
		wait, retryNow := p.pause(failures)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-retryNow:
			failures = 0
		}
		timer.Stop()
	}
}

// pause returns how long to wait for the next attempt after so many failures in a row, and the
// channel that may end that.
func (p *peer) pause(failures int) (wait time.Duration, retryNow <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = min(minRetry<<min(failures, 10), maxRetry)
	switch {
	case p.isSelf || p.alias:
		wait = selfRetryInterval
	case p.now.State == report.PeerRefused:
		wait = max(wait, min(time.Since(p.now.Since)/8, maxRefusedRetry))
	case p.shortRuns > maxShort:
		return min(minRetry<<min(p.shortRuns, 10), shortWait), nil
	}
	return wait, p.retryNow
}

// isHidden reports whether the address belongs to this node, or is another address of a connected
// node.
func (p *peer) isHidden() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isSelf || p.alias
}

func (p *peer) status() report.ClusterPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.now
	out.Queued = p.queue.waitingBytes()
	if len(p.marks) > 0 {
		out.Lag = time.Since(p.marks[0].at)
	}
	return out
}

// isLate reports whether records have waited for the peer for a third of keepEnds. If they are
// dropped with its queue, their ends must still be kept.
func (p *peer) isLate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := p.sentTime
	if len(p.marks) > 0 && p.marks[0].at.Before(oldest) {
		oldest = p.marks[0].at
	}
	return time.Since(oldest) > keepEnds/3
}
