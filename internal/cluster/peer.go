package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/event"
	"loxilb/internal/lb/report"
)

const (
	retryFirst = 250 * time.Millisecond
	retryMost  = time.Second // tables are equal soon after a partition
	// refusedMost is the longest pause before a peer is tried again that has refused this node, or
	// was refused, for a while: nodes that do not fit stay so until somebody changes them.
	refusedMost = 5 * time.Second
	// ownEvery is how often an address of this node, or a further one of a connected node, is
	// tried: another node may have it by then.
	ownEvery = 10 * time.Second
	// A connection that ends within shortTime is a short one. Only shortMost of them in a row are
	// made again at once: each one costs a copy of everything.
	shortTime = 10 * time.Second
	shortMost = 5
	// bulkChunks is how many chunks of a copy of everything wait for the connection.
	bulkChunks = 4
)

// peer is an address that this node sends its connections to.
type peer struct {
	node    *Node
	address string
	queue   *queue
	cancel  context.CancelFunc
	again   chan struct{} // an attempt is due at once
	moved   chan struct{} // capacity 1: routers may have begun to send this node's packets to the peer

	mu      sync.Mutex
	abort   context.CancelFunc      // of the attempt to connect; nil: there is none
	dialed  time.Time               // when the attempt began
	end     context.CancelCauseFunc // of the connection; nil: there is none
	own     bool                    // the address is this node's
	alias   bool                    // it is a further address of a node that is connected
	short   int                     // connections in a row that have ended soon
	boot    string                  // of the process that it is connected to
	begun   time.Time               // when the connection began
	tried   bool
	gone    bool      // no node runs there, or it wants nothing from this one
	serves  bool      // it announced its VIPs when it connected
	refused time.Time // when a node that announces VIPs has refused this one last, there
	known   bool      // and whether that node has proven that it is one
	now     report.ClusterPeer
	unread  []mark // what was sent and not applied yet
	sent    uint64 // records over this connection
}

// mark is when so many records had been sent over a connection.
type mark struct {
	records uint64
	at      time.Time
}

// run connects again and again until ctx ends.
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
		if time.Since(began) > retryMost {
			failures = 0
		}
		wait, again := p.pause(failures)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-again:
			failures = 0
		}
		timer.Stop()
	}
}

// pause returns how long to wait for the next attempt after so many failures in a row, and the
// channel that may end that.
func (p *peer) pause(failures int) (wait time.Duration, again <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = min(retryFirst<<min(failures, 10), retryMost)
	switch {
	case p.own || p.alias:
		wait = ownEvery
	case p.now.State == report.PeerRefused:
		wait = max(wait, min(time.Since(p.now.Since)/8, refusedMost))
	case p.short > shortMost:
		return min(retryFirst<<min(p.short, 10), refusedMost), nil
	}
	return wait, p.again
}

// hurry begins another attempt at once if the peer is not connected: it may be reachable again.
func (p *peer) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.State.Exchanges() || p.own {
		return
	}
	if p.abort != nil && time.Since(p.dialed) < attemptLeast {
		return // it is on its way: two nodes must not abort each other's attempts
	}
	if p.abort != nil {
		p.abort()
	}
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// attemptLeast is how long an attempt to connect is not aborted.
const attemptLeast = 200 * time.Millisecond

// hurryTo hurries to a node that has just connected: it is reachable.
func (n *Node) hurryTo(node, remote string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		if p.isAt(node, remote) {
			p.hurry()
		}
	}
}

// isAt reports whether the peer is this node, or may be: its address is that from which the node
// has connected.
func (p *peer) isAt(node, remote string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.Node == node || p.now.Node == "" && hostOf(p.address) == hostOf(remote)
}

// reconnect ends the connection, or the attempt, and makes another one at once.
func (p *peer) reconnect(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own {
		return
	}
	p.tried = false
	switch {
	case p.end != nil:
		p.end(why)
	case p.abort != nil:
		p.abort()
	}
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// dial connects, unless hurry aborts it: an attempt that began while the network was down would
// wait for a lost SYN to be repeated.
func (p *peer) dial(ctx context.Context) (*transport.Conn, error) {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	p.mu.Lock()
	p.abort, p.dialed = abort, time.Now()
	p.mu.Unlock()
	c, err := transport.Dial(ctx, p.address, p.node.hello(), p.node.Credentials)
	p.mu.Lock()
	p.abort = nil
	p.mu.Unlock()
	return c, attemptError(ctx, err)
}

// attemptError returns the error of an attempt, which hurry may have aborted. What the attempt has
// found out counts nevertheless.
func attemptError(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, transport.ErrSelf) {
		return err
	}
	return errors.Join(err, ctx.Err()) // the dialer has an error of its own for it
}

// connect sends connections to the peer until that fails.
func (p *peer) connect(ctx context.Context) error {
	c, err := p.dial(ctx)
	if err != nil {
		if c != nil {
			_ = c.Close()
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := p.connected(c); err != nil {
		return err
	}
	p.setEnd(cancel)
	defer p.setEnd(nil)
	go func() { cancel(c.ReadAcks(p.applied)) }()
	err = p.send(ctx, c)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return err
}

func (p *peer) setEnd(end context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = end
}

// connected notes a connection, unless the node has one by another of its addresses.
func (p *peer) connected(c *transport.Conn) error {
	p.node.mu.Lock()
	for _, other := range p.node.peers {
		if err := other.conflictsWith(p, &c.Peer); err != nil {
			p.node.mu.Unlock()
			return err
		}
	}
	p.mu.Lock()
	p.tried, p.own, p.alias, p.gone, p.unread, p.sent = true, false, false, false, nil, 0
	p.boot, p.begun = c.Peer.Boot, time.Now()
	p.now.Node, p.now.Build, p.now.Revision = c.Peer.Node, c.Peer.Build, c.Peer.Revision
	p.now.State, p.now.Reason, p.now.Since = report.PeerCopying, "", time.Now()
	p.serves, p.refused = !c.Peer.Joining, time.Time{}
	p.mu.Unlock()
	p.node.mu.Unlock()
	p.node.Log.Info("connected to a node of the cluster", "node", c.Peer.Node, "address", p.address)
	p.node.Events.Publish(event.Peer{Node: c.Peer.Node, Address: p.address, Action: event.Began})
	p.node.quiet()
	return nil
}

// failed notes why there is no connection.
func (p *peer) failed(err error) {
	var refused *transport.ErrRefused
	var alias *aliasError
	state, planned := report.PeerDown, isPlanned(err)
	if errors.As(err, &refused) || isJudgement(err) && !planned {
		state = report.PeerRefused
	}
	p.mu.Lock()
	before := p.now
	p.tried = p.tried || !planned // reconnect ends the connection for another attempt, which counts
	p.own, p.alias, p.gone = errors.Is(err, transport.ErrSelf), errors.As(err, &alias), isAbsent(err, state)
	p.now.Reason, p.now.Lag = reasonOf(err), 0
	if p.alias {
		p.now.Node = alias.node
	}
	if refused != nil {
		p.refused = time.Time{}
		if refused.Serves {
			p.refused, p.known = time.Now(), refused.Known
		}
	}
	if before.State.Exchanges() && !planned {
		p.short++
		if time.Since(p.begun) > shortTime {
			p.short = 0
		}
	}
	if state != before.State {
		p.now.State, p.now.Since = state, time.Now()
	}
	hidden, reason := p.own || p.alias, p.now.Reason
	p.mu.Unlock()
	switch {
	case hidden:
	case before.State.Exchanges():
		p.lost(before.Node, err)
	case reason != before.Reason:
		p.node.Log.Warn("a node of the cluster is not connected", "address", p.address, "error", err)
	}
}

// lost reports that a connection has ended. Another address of the node may still work.
func (p *peer) lost(name string, err error) {
	if errors.Is(err, errRenewed) {
		p.node.Log.Info("a node of the cluster is connected again", "node", name, "address", p.address, "why", err)
	} else {
		p.node.Log.Warn("connection to a node of the cluster is lost", "node", name, "address", p.address, "error", err)
	}
	p.node.Events.Publish(event.Peer{Node: name, Address: p.address, Action: event.Ended, Reason: reasonOf(err)})
	p.node.quiet()
	p.node.hurryTo(name, "")
}

// isJudgement reports whether an error says that the nodes do not fit each other, rather than that
// one is not there.
func isJudgement(err error) bool {
	var n net.Error
	var o *net.OpError
	return err != nil && !errors.As(err, &n) && !errors.As(err, &o) && !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) && !isEnd(err)
}

// isHidden reports whether the address is no other node's, or that of a node that another address
// stands for.
func (p *peer) isHidden() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own || p.alias
}

// conflictsWith returns why another peer must not be connected to a node: this one is connected to
// it, or to one of its name.
func (p *peer) conflictsWith(other *peer, node *transport.Hello) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p == other || p.now.Node != node.Node || !p.now.State.Exchanges():
		return nil
	case p.boot == node.Boot:
		return &aliasError{node.Node, p.address}
	default:
		return fmt.Errorf("the nodes at %s and %s are both named %q: give each its own host name", hostOf(p.address), hostOf(other.address), node.Node)
	}
}

// aliasError reports that an address is a further one of a node.
type aliasError struct{ node, connected string }

func (e *aliasError) Error() string {
	return fmt.Sprintf("it is another address of node %q, which is connected by %s", e.node, e.connected)
}

func (p *peer) status() report.ClusterPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.now
	out.Queued = p.queue.waiting()
	if len(p.unread) > 0 {
		out.Lag = time.Since(p.unread[0].at)
	}
	return out
}

// applied notes how many records the peer has applied.
func (p *peer) applied(records uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.unread) > 0 && p.unread[0].records <= records {
		p.unread = p.unread[1:]
	}
}

// send sends all connections, and what changes meanwhile and afterwards.
func (p *peer) send(ctx context.Context, c *transport.Conn) error {
	p.queue.take() // what was queued before is part of it
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
			list, dropped := p.queue.take()
			if dropped && bulk == nil {
				p.node.Log.Warn("a node of the cluster is too slow: it gets all connections again", "node", c.Peer.Node, "queue", QueueMost)
				p.setState(report.PeerCopying)
				bulk = p.beginBulk(ctx, c, false)
			} else if dropped {
				stale = true // once this copy of everything is complete
			}
			for i := 0; i < len(list) && err == nil; i++ {
				err = p.sendChunk(c, list[i])
			}
		case <-ping.C:
			err = c.Ping(p.node.Held() == "", false)
		case <-state.C:
			if c.Peer.Takes(transport.FeatureState) {
				services, err = p.sendState(c, services)
			}
		case <-p.moved:
			err = c.Ping(p.node.Held() == "", true)
		}
		if err != nil {
			return err
		}
	}
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
	// markEvery is the least time between two marks.
	markEvery = 10 * time.Millisecond
	// marksMost bounds the marks of a peer that is alive and applies nothing.
	marksMost = 1000
)

func (p *peer) sendChunk(c *transport.Conn, part chunk) error {
	if !c.Peer.Takes(part.needs) {
		return nil
	}
	if part.clients {
		return c.SendClients(part.data)
	}
	if err := c.SendRecords(part.data); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Sent += uint64(part.count)
	p.sent += uint64(part.count)
	if last := len(p.unread) - 1; last > 0 && (time.Since(p.unread[last].at) < markEvery || last > marksMost) {
		p.unread[last].records = p.sent
	} else {
		p.unread = append(p.unread, mark{p.sent, time.Now()})
	}
	return nil
}

// beginBulk scans the table for the peer. It is as fast as the peer. withCopies: the peer has lost
// its table, so it gets back its own connections, too.
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
		err := p.node.Table.ScanCopies(ctx, report.CopySelection{Copies: withCopies}, func(list []report.ConnectionCopy) error {
			for _, part := range chunksOf(list) {
				if err := put(part); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && c.Peer.TakesClients() {
			err = p.node.scanClients(ctx, put)
		}
		if err != nil {
			_ = put(chunk{err: err})
		}
	}()
	return parts
}
