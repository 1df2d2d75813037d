package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/event"
	"loxilb/internal/lb/report"
)

// connectNow begins another attempt at once if the peer is not connected: it may be reachable
// again.
func (p *peer) connectNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.State.Exchanges() || p.isSelf {
		return
	}
	if p.abort != nil && time.Since(p.dialed) < minAttemptTime {
		return // the attempt has just begun: two nodes must not abort each other's attempts
	}
	if p.abort != nil {
		p.abort()
	}
	select {
	case p.retryNow <- struct{}{}:
	default:
	}
}

// minAttemptTime is the time for which an attempt to connect is not aborted.
const minAttemptTime = 200 * time.Millisecond

// connectNowTo hurries to a node that has just connected: it is reachable.
func (n *Node) connectNowTo(node, remote string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		if p.isAt(node, remote) {
			p.connectNow()
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
	if p.isSelf {
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
	case p.retryNow <- struct{}{}:
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
	var refused *transport.ErrRefused
	if errors.As(err, &refused) && refused.Node == "" && p.node.listensAt(p.address) {
		err = transport.ErrSelf // it does not accept its own certificate
	}
	return c, attemptError(ctx, err)
}

// listensAt reports whether this process listens at an address.
func (n *Node) listensAt(address string) bool {
	at, err := netip.ParseAddrPort(address)
	own, ok := n.listener.Addr().(*net.TCPAddr)
	if err != nil || !ok || own.Port != int(at.Port()) {
		return false
	}
	if !own.IP.IsUnspecified() {
		return own.IP.Equal(at.Addr().AsSlice())
	}
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
		prefix, ok := a.(*net.IPNet)
		return ok && prefix.IP.Equal(at.Addr().AsSlice())
	})
}

// attemptError returns the error of an attempt. If hurry aborted it, the attempt's own findings
// still count.
func attemptError(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, transport.ErrSelf) {
		return err
	}
	return errors.Join(err, ctx.Err()) // the dialer returns its own error instead
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
	defer c.Close() //nolint:errcheck // the connection has failed
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
	p.tried, p.isSelf, p.alias, p.absent, p.marks, p.sent = true, false, false, false, nil, 0
	p.boot, p.connectedAt, p.readsPacked = c.Peer.Boot, time.Now(), c.Peer.Supports(transport.FeaturePacked)
	p.now.Node, p.now.Build, p.now.Revision = c.Peer.Node, c.Peer.Build, c.Peer.Revision
	p.now.State, p.now.Reason, p.now.Since = report.PeerCopying, "", time.Now()
	p.serves, p.refused = !c.Peer.Joining, time.Time{}
	p.mu.Unlock()
	p.node.mu.Unlock()
	p.node.Log.Info("connected to a node of the cluster", "node", c.Peer.Node, "address", p.address)
	p.node.Events.Publish(event.Peer{Node: c.Peer.Node, Address: p.address, Action: event.Began})
	p.node.keepQuiet()
	return nil
}

// failed records why there is no connection.
func (p *peer) failed(err error) {
	var refused *transport.ErrRefused
	var alias *aliasError
	named := ""
	if errors.As(err, &refused) {
		named = p.node.unusedName(refused.Node, p)
	}
	state, planned := report.PeerDown, isPlanned(err)
	if refused != nil || isRefusal(err) && !planned {
		state = report.PeerRefused
	}
	p.mu.Lock()
	before := p.now
	p.tried = p.tried || !planned // reconnect ends the connection for another attempt, which counts
	p.isSelf, p.alias, p.absent = errors.Is(err, transport.ErrSelf), errors.As(err, &alias), isAbsent(err, state)
	p.now.Reason, p.now.Lag = reasonOf(err), 0
	switch {
	case p.alias:
		p.now.Node = alias.node
	case named != "":
		p.now.Node = named
	}
	if refused != nil {
		p.refused = time.Time{}
		if refused.Serves {
			p.refused, p.proven = time.Now(), refused.Certified
		}
	}
	if before.State.Exchanges() && !planned {
		p.shortRuns++
		if time.Since(p.connectedAt) > shortTime {
			p.shortRuns = 0
		}
	}
	if state != before.State {
		p.now.State, p.now.Since = state, time.Now()
	}
	hidden, reason := p.isSelf || p.alias, p.now.Reason
	p.mu.Unlock()
	p.queue.take() // the next connection begins with a copy of everything
	switch {
	case hidden:
	case before.State.Exchanges():
		p.lost(before.Node, err)
	case reason != before.Reason:
		p.node.Log.Warn("cannot connect to a node of the cluster", "address", p.address, "error", err)
	}
}

// unusedName returns a name that a peer has, unless this node or another peer has it.
func (n *Node) unusedName(name string, of *peer) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == n.Hello.Node || slices.ContainsFunc(n.peers, func(p *peer) bool { return p != of && p.status().Node == name }) {
		return ""
	}
	return name
}

// lost reports that a connection has ended. Another address of the node may still work.
func (p *peer) lost(name string, err error) {
	if errors.Is(err, errRenewed) {
		p.node.Log.Info("a node of the cluster is connected again", "node", name, "address", p.address, "why", err)
	} else {
		p.node.Log.Warn("connection to a node of the cluster is lost", "node", name, "address", p.address, "error", err)
	}
	p.node.Events.Publish(event.Peer{Node: name, Address: p.address, Action: event.Ended, Reason: reasonOf(err)})
	p.node.keepQuiet()
	p.node.connectNowTo(name, "")
}

// isRefusal reports whether an error means that the nodes are incompatible, rather than
// unreachable.
func isRefusal(err error) bool {
	var n net.Error
	var o *net.OpError
	return err != nil && !errors.As(err, &n) && !errors.As(err, &o) && !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errUnread) &&
		!isEnd(err)
}

// conflictsWith returns why another peer must not connect to a node: this peer is already connected
// to it, or to a node with its name.
func (p *peer) conflictsWith(other *peer, node *transport.Hello) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p == other || p.now.Node != node.Node || !p.now.State.Exchanges():
		return nil
	case p.boot == node.Boot:
		return &aliasError{node.Node, p.address}
	default:
		return errSameName(node.Node, p.address, other.address)
	}
}

// aliasError reports that an address is another address of a connected node.
type aliasError struct{ node, connected string }

func (e *aliasError) Error() string {
	return fmt.Sprintf("it is another address of node %q, which is connected by %s", e.node, e.connected)
}
