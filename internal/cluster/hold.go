package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"loxilb/internal/event"
)

const (
	// refusalTime is how long a refusal by a serving node is valid: longer than a node takes to
	// restart.
	refusalTime = 10 * time.Second
	// rejoinTime is how long a node that was cut off waits for the connections of the others.
	rejoinTime = 3 * time.Second
	// longAway is longer than BGP takes by default to lose a session without BFD.
	longAway = 2 * time.Minute
	// holdCheckInterval is the interval of checks whether the reason to hold VIPs back is gone.
	holdCheckInterval = 250 * time.Millisecond
)

// hold decides whether this node may announce its VIPs. Without the connections of other nodes, it
// must not: it would break them.
//
// Two nodes that refuse each other cannot know which of them is misconfigured. So a node that
// announces VIPs continues, and a starting node waits while others announce theirs.
type hold struct {
	mu               sync.Mutex
	reason           string        // empty: VIPs may be announced
	since            time.Time     // when announced VIPs were withdrawn last; zero: never
	isolated         bool          // BGP neighbors are configured, and none has a session
	isolationChanged chan struct{} // capacity 1: isolated was set
	released         chan struct{} // closed once VIPs may be announced
}

// HeldReason returns why this node must not announce its VIPs, or "".
func (n *Node) HeldReason() string {
	if n == nil {
		return ""
	}
	n.hold.mu.Lock()
	defer n.hold.mu.Unlock()
	return n.hold.reason
}

// serves reports whether this node announces its VIPs, or did recently: a node that is briefly cut
// off announces them again, so incompatible nodes must not begin in between.
func (n *Node) serves() bool {
	h := &n.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason == "" || !h.since.IsZero() && time.Since(h.since) < n.refusalTime
}

// Refused reports whether serving nodes refuse this one, which has not announced VIPs yet.
func (n *Node) Refused() bool {
	if n == nil {
		return false
	}
	select {
	case <-n.hold.released: // first: a node that has joined may have both, and select would choose either
		return false
	default:
	}
	select {
	case <-n.join.done:
		return true
	default:
		return false
	}
}

// Serving is closed once this node may announce its VIPs.
func (n *Node) Serving() <-chan struct{} { return n.hold.released }

func (n *Node) setHeld(reason string) {
	h := &n.hold
	h.mu.Lock()
	changed := h.reason != reason
	if h.reason == "" && reason != "" {
		h.since = time.Now()
	}
	h.reason = reason
	if reason == "" {
		select {
		case <-h.released:
		default:
			close(h.released)
		}
	}
	h.mu.Unlock()
	if changed {
		n.holdChanged()
	}
}

func (n *Node) holdChanged() {
	if n.HoldChanged != nil {
		n.HoldChanged()
	}
}

// awaitAcceptance finishes the join, and returns once VIPs may be announced: a node that serves
// accepts this one, or no node that serves refuses it.
func (n *Node) awaitAcceptance(ctx context.Context) {
	defer n.join.finish()
	why := n.refusal()
	if why == "" {
		n.setHeld("")
		return
	}
	n.Log.Error("VIPs are not announced: serving nodes refuse this one", "reason", why)
	n.Events.Publish(event.Node{Action: event.Began, What: "VIPs are not announced: " + why})
	n.setHeld(why)
	n.join.finish()
	n.holdChanged() // again: Refused reports it only now
	for why != "" {
		n.setHeld(why)
		select {
		case <-ctx.Done():
			return
		case <-time.After(holdCheckInterval):
		}
		why = n.refusal()
	}
	n.awaitCopies(ctx)
	n.setHeld("")
	n.Log.Info("VIPs may be announced: no serving node refuses this one")
	n.Events.Publish(event.Node{Action: event.Ended, What: "VIPs may be announced: no serving node refuses this one"})
}

// refusal returns why a starting node does not announce VIPs; empty: it does. A refusal by a node
// with another key may come from a stranger: it does not count if a serving node accepts this one.
func (n *Node) refusal() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	accepted, stranger := false, ""
	for _, s := range n.sources {
		accepted = accepted || s.serves()
	}
	for _, p := range n.peers {
		p.mu.Lock()
		accepted = accepted || p.serves && p.now.State.Exchanges()
		refused, known := time.Since(p.refused) < n.refusalTime, p.proven
		why := fmt.Sprintf("the serving node at %s refuses this one: %s", p.address, p.now.Reason)
		p.mu.Unlock()
		if refused && known {
			return why
		}
		if refused {
			stranger = why
		}
	}
	if accepted {
		return ""
	}
	return stranger
}

// SessionsChanged reports that BGP sessions began or ended. isolated means that this node has
// neighbors, but no session. A router that leaves this node sends its packets to other nodes,
// perhaps before they have the records, so they also leave unknown segments unanswered for a while.
func (n *Node) SessionsChanged(isolated bool) {
	n.MembershipChanged()
	n.notifyRerouted()
	h := &n.hold
	h.mu.Lock()
	h.isolated = isolated
	h.mu.Unlock()
	select {
	case h.isolationChanged <- struct{}{}:
	default:
	}
}

// notifyRerouted notifies the other nodes that routers may have begun to send this node's packets
// to them.
func (n *Node) notifyRerouted() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		select {
		case p.rerouted <- struct{}{}:
		default: // the peer is about to be notified
		}
	}
}

func (n *Node) isIsolated() bool {
	n.hold.mu.Lock()
	defer n.hold.mu.Unlock()
	return n.hold.isolated
}

// followIsolation holds VIPs back whenever this node was cut off from routers and nodes, until it
// has the connections that others have opened meanwhile.
func (n *Node) followIsolation(ctx context.Context) {
	for ctx.Err() == nil {
		news, cut := n.join.next(), n.isIsolated()
		switch {
		case cut && n.hasGap():
			n.setHeld("this node is cut off from BGP neighbors and other nodes")
		case !cut && n.HeldReason() != "":
			n.rejoin(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-n.hold.isolationChanged:
		case <-news:
		}
	}
}

// hasGap reports whether this node may lack connections of another node. While a node is connected,
// it ignores nodes that have been away for long: this node announced VIPs without them.
func (n *Node) hasGap() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	connected, away := false, false
	for _, s := range n.sources {
		switch {
		case s.isCurrent():
			connected = true
		case s.isLive(longAway):
			return true
		default:
			away = true
		}
	}
	return away && !connected
}

// errIsolated ends connections that stalled while this node was cut off: TCP would retransmit their
// segments only seconds after the network is back.
var errIsolated = errors.New("this node was cut off")

// rejoin gets the connections of the other nodes, and then announces VIPs again.
func (n *Node) rejoin(ctx context.Context) {
	n.mu.Lock()
	for _, s := range n.sources {
		s.restart()
	}
	for _, p := range n.peers {
		p.reconnect(errIsolated)
	}
	n.mu.Unlock()
	n.awaitCopies(ctx)
	if !n.isIsolated() {
		n.setHeld("")
	}
}

// awaitCopies waits until the other nodes have sent all connections, for rejoinTime at most. It
// ends sooner if this node is cut off.
func (n *Node) awaitCopies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rejoinTime)
	defer cancel()
	for began := time.Now(); !n.isIsolated(); {
		news := n.join.next()
		missing, _ := n.missing()
		if len(missing) == 0 {
			n.Log.Info("received the connections of the other nodes again", "took", time.Since(began).Round(time.Millisecond))
			return
		}
		select {
		case <-ctx.Done():
			n.Log.Warn("announcing without the connections of some nodes", "nodes", strings.Join(missing, ", "), "waited", rejoinTime)
			return
		case <-news:
		case <-time.After(holdCheckInterval):
		}
	}
}
