package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// mark is a number of records that had been sent over a connection at a time.
type mark struct {
	records uint64
	at      time.Time
}

// applied notes how many records the peer has applied.
func (p *peer) applied(records uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.marks) > 0 && p.marks[0].records <= records {
		p.marks = p.marks[1:]
	}
}

// send sends all connections, and then the changes since it began.
func (p *peer) send(ctx context.Context, c *transport.Conn) error {
	p.queue.take() // the full copy includes what was queued before
	bulk, stale := p.beginBulk(ctx, c, c.Peer.NewTable), false
	ping, state := time.NewTicker(transport.PingEvery), time.NewTicker(stateEvery)
	defer ping.Stop()
	defer state.Stop()
	services := 0
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case part, more := <-bulk:
			switch {
			case part.err != nil:
				err = part.err
			case more:
				err = p.sendChunk(c, part)
			case stale:
				bulk, stale = p.beginBulk(ctx, c, false), false
			default:
				bulk = nil
				p.setState(report.PeerUp)
				err = c.SendBulkEnd()
			}
		case <-p.queue.ready:
			at := time.Now()
			list, dropped := p.queue.take()
			if dropped && bulk == nil {
				p.node.Log.Warn("a node of the cluster is too slow: it gets all connections again", "node", c.Peer.Node, "queue", MaxQueue)
				p.setState(report.PeerCopying)
				bulk = p.beginBulk(ctx, c, false)
			} else if dropped {
				stale = true // once this copy of everything is complete
			}
			err = p.sendQueued(c, list, at)
		case <-ping.C:
			p.sentAll()
			err = c.Ping(p.node.HeldReason() == "", false)
		case <-state.C:
			if c.Peer.Supports(transport.FeatureState) {
				services, err = p.sendState(c, services)
			}
		case <-p.rerouted:
			err = c.Ping(p.node.HeldReason() == "", true)
		}
		if err != nil {
			return err
		}
	}
}

// sendQueued sends chunks that were taken from the queue at a time.
func (p *peer) sendQueued(c *transport.Conn, list []chunk, at time.Time) error {
	for _, part := range list {
		if err := p.sendChunk(c, part); err != nil {
			return err
		}
	}
	p.sentUntil(at)
	return nil
}

// sentAll notes that the peer was sent all, unless records wait in its queue, or were dropped.
func (p *peer) sentAll() {
	if now := time.Now(); p.queue.waitingBytes() == 0 && !p.queue.isStale() {
		p.sentUntil(now)
	}
}

// sentUntil notes that the peer was sent all that was put into its queue until then.
func (p *peer) sentUntil(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sentTime = at
}

func (p *peer) setState(s report.PeerState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.State, p.now.Since = s, time.Now()
	if s == report.PeerUp {
		p.now.BulkCopies++
	}
}

const (
	// minMarkInterval is the least time between two marks.
	minMarkInterval = 10 * time.Millisecond
	// maxMarks bounds the marks of a peer that is alive and applies nothing.
	maxMarks = 1000
	// bulkChunks is how many chunks of a copy of everything wait for the connection.
	bulkChunks = 4
)

func (p *peer) sendChunk(c *transport.Conn, part chunk) error {
	if !c.Peer.Supports(part.needs) {
		return nil
	}
	if part.clients {
		return c.SendClients(part.data)
	}
	send := c.SendRecords
	switch part.needs {
	case transport.FeaturePacked:
		send = c.SendPacked
	case transport.FeatureEnds:
		send = c.SendEnds
	}
	if err := send(part.data); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Sent += uint64(part.count)
	p.sent += uint64(part.count)
	if last := len(p.marks) - 1; last > 0 && (time.Since(p.marks[last].at) < minMarkInterval || last > maxMarks) {
		p.marks[last].records = p.sent
	} else {
		p.marks = append(p.marks, mark{p.sent, time.Now()})
	}
	return nil
}

// errUnread ends a connection because this node cannot read what it has to send.
var errUnread = errors.New("this node cannot read its connections")

// beginBulk scans the table for the peer, at the peer's speed. withCopies means that the peer has
// lost its table, so it also gets back its own connections.
func (p *peer) beginBulk(ctx context.Context, c *transport.Conn, withCopies bool) <-chan chunk {
	parts := make(chan chunk, bulkChunks)
	put := func(part chunk) error {
		select {
		case parts <- part:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	go func() {
		defer close(parts)
		err := p.node.scanAll(ctx, &c.Peer, withCopies, put)
		if ctx.Err() != nil {
			return
		}
		p.node.faults.set(noBulk, err)
		if err != nil {
			_ = put(chunk{err: fmt.Errorf("%w: %w", errUnread, err)})
		}
	}()
	return parts
}

// scanAll passes on everything that a connecting node needs. Ends that it has missed come first:
// otherwise it could take the next connection of a client's port for an earlier one. Ends since the
// start of the scan follow, for connections that the scan found open.
func (n *Node) scanAll(ctx context.Context, to *transport.Hello, withCopies bool, put func(chunk) error) error {
	putEnds := func(since time.Time) error {
		if !to.Supports(transport.FeatureEnds) {
			return nil
		}
		return n.ends.each(since, put)
	}
	began := time.Now()
	if err := putEnds(time.Time{}); err != nil {
		return err
	}
	err := n.Table.ScanCopies(ctx, report.CopySelection{Copies: withCopies}, func(list []report.ConnectionCopy) error {
		for _, part := range chunksOf(list, to.Supports(transport.FeaturePacked)) {
			if err := put(part); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && to.SupportsClients() {
		err = n.scanClients(ctx, put)
	}
	return errors.Join(err, putEnds(began))
}
