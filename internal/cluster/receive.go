package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb/report"
)

// source is a node that sends its connections to this one.
type source struct {
	remote string

	mu           sync.Mutex
	live         *transport.Conn // nil: it is not connected
	since        time.Time       // when it has connected, or left
	complete     bool            // it has sent all connections over this connection
	hadAll       bool            // it did so before, so connections that it returns may have ended since
	received     uint64
	results      [report.CopyResults]uint64
	dropped      uint64
	parked       int
	requested    uint64 // dropped, when the node was last asked to send all connections again
	requestedFor int    // how often the services of this node had changed then

	suspected time.Time // when it was last silent during this connection; zero: never
	serving   bool      // it announces its VIPs

	state         *stateFrame       // without services; nil: it has shown none
	services      map[string]string // nil: not known
	arriving      map[string]string // services, until the last one has arrived
	arrivingBytes int
	version       int    // of services
	compared      [2]int // versions of the own and of these services that differences compares
	differing     int
	differences   []string  // the first ones
	differsSince  time.Time // zero: there are no differences
	warned        bool      // about them
}

// addTo adds the source's counters to the peer's status.
func (s *source) addTo(out *report.ClusterPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Sends = s.live != nil
	out.Received, out.Results, out.Dropped, out.Parked = s.received, s.results, s.dropped, s.parked
	s.addState(out)
}

// unanswered returns the status of a node that sends its connections and receives none. Its address
// may be missing in --cluster, or no longer belong to a configured name.
func (s *source) unanswered(name string) report.ClusterPeer {
	s.mu.Lock()
	out := report.ClusterPeer{Node: name, Address: s.remote, State: report.PeerDown, Since: s.since}
	out.Reason = "it has left, and its address is not in --cluster"
	if s.live != nil {
		out.Reason = "it sends its connections, but its address is not in --cluster, so it gets none"
	}
	s.mu.Unlock()
	s.addTo(&out)
	return out
}

// oneWayTime is how long a node may get connections and send none before that is shown.
const oneWayTime = 5 * time.Second

// isLive reports whether the node sends its connections, or did until within. nil: it never has.
func (s *source) isLive(within time.Duration) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live != nil || time.Since(s.since) < within
}

// goneTime is how long an absent node is shown if its address is not configured.
const goneTime = time.Minute

// forgetSources forgets nodes that have gone and are not configured: names may belong to
// short-lived processes. Their parked records stay, and ends are kept for them.
func (n *Node) forgetSources() {
	n.mu.Lock()
	defer n.mu.Unlock()
	configured := map[string]bool{}
	for _, p := range n.peers {
		configured[p.status().Node] = true
	}
	for name, s := range n.sources {
		s.mu.Lock()
		if s.live == nil && time.Since(s.since) > n.goneTime && !configured[name] {
			delete(n.sources, name)
			n.noteDeparture(name, s.since)
		}
		s.mu.Unlock()
	}
}

// noteDeparture records when a node has left. Beyond maxSources, it forgets the earliest. The
// caller must hold n.mu.
func (n *Node) noteDeparture(name string, since time.Time) {
	n.departed[name] = since
	for len(n.departed) > maxSources {
		first := name
		for other, at := range n.departed {
			if at.Before(n.departed[first]) {
				first = other
			}
		}
		delete(n.departed, first)
	}
}

// receive inserts the connections that a node sends, until it ends.
func (n *Node) receive(ctx context.Context, c *transport.Conn) {
	s := n.sourceOf(c)
	defer n.join.changed()
	defer s.leave(c)
	n.keepQuiet()
	n.connectNowTo(c.Peer.Node, c.Remote())
	if err := n.Table.ExpectCopies(ctx, max(0, c.Peer.Connections)); err != nil && ctx.Err() == nil {
		n.Log.Warn("the table has no room for the connections of a node of the cluster", "node", c.Peer.Node, "connections", c.Peer.Connections, "error", err)
	}
	applied, age := uint64(0), staleness{answered: time.Now(), giveUpTime: n.staleTime}
	var list, ends []report.ConnectionCopy
	put := func(list []report.ConnectionCopy) error {
		applied += uint64(len(list))
		stale := age.now()
		for i := range list {
			list[i].Idle += stale
		}
		return n.apply(ctx, s, list)
	}
	putEnds := func() (err error) {
		if len(ends) > 0 {
			err = put(ends)
			ends = ends[:0]
		}
		return err
	}
	records := func(frame []byte, decode decoder) (err error) {
		if list, err = decode(list[:0], frame); err != nil {
			return err
		}
		return errors.Join(putEnds(), put(list))
	}
	answer := func() error {
		age.answer()
		return c.Ack(applied)
	}
	err := c.ReadRecords(transport.Reader{
		Records: func(b []byte) error { return records(b, decodeRecords) },
		Packed:  func(b []byte) error { return records(b, decodePacked) },
		Ends: func(b []byte) (err error) { // a frame may have one end, and a call costs as much as many
			if ends, err = decodeEnds(ends, b); err != nil || len(ends) < endsAtOnce {
				return err
			}
			return putEnds()
		},
		Clients: func(b []byte) error { return n.applyClients(ctx, s, b, age.now()) },
		State:   s.storeState,
		BulkEnd: func() error {
			if err := errors.Join(putEnds(), n.applyOwnEnds(ctx, s, nil, answer)); err != nil {
				return err
			}
			ends = nil
			s.mu.Lock()
			s.complete, s.hadAll = true, true
			s.mu.Unlock()
			n.join.changed()
			return nil
		},
		Serves: func() {
			s.mu.Lock()
			s.serving = true
			s.mu.Unlock()
		},
		Rerouted: n.keepQuiet,
		Idle:     answer,
		Suspect: func() {
			n.keepQuiet() // routers may leave the peer before its last records are here
			s.suspect()
			n.join.changed()
		},
	})
	if ctx.Err() != nil {
		return
	}
	n.keepQuiet()
	if !isEnd(err) && !errors.Is(err, net.ErrClosed) { // this node may have closed it
		n.Log.Warn("a node of the cluster no longer sends connections", "node", c.Peer.Node, "error", err)
	}
}

// staleness is how old the records of a connection are when they are read. A process that was
// stopped still gets what was sent to it, although the node has given it up: these records must not
// replace connections that the kernel has opened here meanwhile.
type staleness struct {
	answered   time.Time     // when this process last acknowledged records
	giveUpTime time.Duration // the node disconnects after this time without an answer
	maxAge     time.Duration // maximum age of arriving records
	until      time.Time     // when all records that preceded the last answer have arrived
}

func (s *staleness) now() time.Duration {
	late := time.Since(s.answered)
	switch {
	case late > s.giveUpTime:
		s.maxAge, s.until = max(s.maxAge, late), time.Now().Add(suspectTime)
	case time.Now().After(s.until): // the node has not given this one up: it was as slow
		s.maxAge = 0
	}
	return s.maxAge
}

func (s *staleness) answer() {
	s.now()
	s.answered = time.Now()
}

// maxSources is how many nodes may send their connections. Addresses that are configured are
// always accepted.
const maxSources = 64

const (
	// sameNameTime is how long a second node with a name waits until it is accepted or refused: if
	// the first one is dead, it falls silent by then.
	sameNameTime          = 400 * time.Millisecond
	sameNameCheckInterval = 20 * time.Millisecond
)

// otherProcess returns the live connection of the node's name if another process made it, or nil.
// If before is not nil, it also returns nil once another connection has replaced before. A silent
// process counts as restarted if the new one connects from its address; otherwise it may be busy.
func (s *source) otherProcess(before *transport.Conn, from string, peer *transport.Hello) *transport.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil || s.live.Peer.Boot == peer.Boot || before != nil && s.live != before {
		return nil
	}
	if s.isSuspected() && hostOf(s.live.Remote()) == hostOf(from) {
		return nil
	}
	return s.live
}

// checkName refuses a second node with the name of a live one. A restarted node has closed its
// connections, or is silent.
func (n *Node) checkName(from string, peer *transport.Hello) error {
	configured := n.isNodeAt(hostOf(from))
	n.mu.Lock()
	s, known := n.sources[peer.Node], len(n.sources)
	n.mu.Unlock()
	if s == nil {
		if known >= maxSources && !configured {
			return fmt.Errorf("node %q exchanges connections with %d other nodes, and not with %q", n.Hello.Node, known, peer.Node)
		}
		return nil
	}
	was := s.otherProcess(nil, from, peer)
	for end := time.Now().Add(sameNameTime); was != nil && time.Now().Before(end); time.Sleep(sameNameCheckInterval) {
		was = s.otherProcess(was, from, peer)
	}
	if was == nil {
		return nil
	}
	return errSameName(peer.Node, was.Remote(), from)
}

func errSameName(name, address, other string) error {
	return fmt.Errorf("the nodes at %s and %s are both named %q: give each its own --cluster-node", hostOf(address), hostOf(other), name)
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// sourceOf returns the source of a connection. A node's new connection replaces its old one, which
// the node has given up.
func (n *Node) sourceOf(c *transport.Conn) *source {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sources[c.Peer.Node]
	if s == nil {
		s = &source{}
		n.sources[c.Peer.Node] = s
		delete(n.departed, c.Peer.Node)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil {
		_ = s.live.Abort()
	}
	s.since = time.Now()
	s.live, s.remote, s.complete, s.suspected, s.serving = c, c.Remote(), false, time.Time{}, !c.Peer.Joining
	s.forgetState()
	return s
}

// hasConnectionsOf reports whether this process has ever received all connections of a node.
func (n *Node) hasConnectionsOf(node string) bool {
	n.mu.Lock()
	s := n.sources[node]
	n.mu.Unlock()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hadAll
}

// suspect records that the node has fallen silent.
func (s *source) suspect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspected = time.Now()
}

// suspectTime is how long a silent node's records may be late. It sends further ones by then, or is
// given up.
const suspectTime = 10 * time.Second

// isSuspected reports whether the node was silent a moment ago. The caller has locked the source.
func (s *source) isSuspected() bool {
	return !s.suspected.IsZero() && time.Since(s.suspected) < suspectTime
}

// isCurrent reports whether the node's connections arrive without a pause.
func (s *source) isCurrent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live != nil && s.complete && !s.isSuspected()
}

// serves reports whether the node exchanges connections and announces its VIPs.
func (s *source) serves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live != nil && s.serving
}

// restart closes a connection that has stalled. The node connects again and sends everything.
func (s *source) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSuspected() && s.live != nil {
		_ = s.live.Abort()
		s.complete = false
	}
}

func (s *source) leave(c *transport.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == c { // connections that the node opens from now on are missing
		s.live, s.since, s.complete = nil, time.Now(), false
	}
}

// isEnd reports whether an error is the normal end of a connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// reasonOf returns the last line of an error, for tables.
func reasonOf(err error) string {
	if err == nil || isEnd(err) {
		return "the node has closed the connection"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// decode appends the records of a frame to list.
func decode[T any](list []T, b []byte, first func([]byte) (T, []byte, error)) ([]T, error) {
	for len(b) > 0 {
		c, rest, err := first(b)
		if err != nil {
			return list, err
		}
		list, b = append(list, c), rest
	}
	return list, nil
}

// decoder appends the connections of a frame to list.
type decoder func(list []report.ConnectionCopy, frame []byte) ([]report.ConnectionCopy, error)

func decodeRecords(list []report.ConnectionCopy, frame []byte) ([]report.ConnectionCopy, error) {
	return decode(list, frame, record.Decode)
}

func decodePacked(list []report.ConnectionCopy, frame []byte) ([]report.ConnectionCopy, error) {
	var packed record.Unpacker
	return decode(list, frame, packed.Decode)
}

// apply inserts copies, and parks those whose service or endpoint is not here yet.
func (n *Node) apply(ctx context.Context, s *source, list []report.ConnectionCopy) error {
	n.keepEnds(list)
	results := make([]report.CopyResult, len(list))
	if err := n.Table.PutCopies(ctx, list, results); err != nil {
		return err
	}
	s.mu.Lock()
	s.received += uint64(len(list))
	for i, r := range results {
		if list[i].Late && (r == report.CopyUnknown || r == report.CopyOld) {
			continue // an end without a connection is no news
		}
		if mayApplyLater(&list[i], r) {
			if n.parked.add(s, list[i]) {
				s.parked++
			} else {
				s.dropped++
			}
			continue
		}
		s.results[r]++
	}
	s.mu.Unlock()
	return nil
}

// mayApplyLater reports whether a copy should wait for its service or endpoint. An end need not:
// without the service, its connection does not exist.
func mayApplyLater(c *report.ConnectionCopy, r report.CopyResult) bool {
	return r == report.CopyBusy || r == report.CopyUnknown && !c.Late
}

// retryParked tries parked copies again, until ctx ends.
func (n *Node) retryParked(ctx context.Context) {
	for wait := parkedRetry; monotime.Sleep(ctx, wait); {
		began := time.Now()
		if list := n.parked.take(); len(list) > 0 {
			n.retryCopies(ctx, list)
		}
		if list := n.clients.take(); len(list) > 0 {
			n.retryClients(ctx, list)
		}
		wait = max(parkedRetry, min(parkedCost*time.Since(began), parkedTime/4))
	}
}

func (n *Node) retryCopies(ctx context.Context, list []waiting[report.ConnectionCopy]) {
	copies, results := make([]report.ConnectionCopy, len(list)), make([]report.CopyResult, len(list))
	for i := range list {
		copies[i] = list[i].record
		copies[i].Idle += time.Since(list[i].arrived)
	}
	if err := n.Table.PutCopies(ctx, copies, results); err != nil {
		if ctx.Err() == nil {
			n.Log.Error("connections of other nodes cannot be inserted", "error", err)
		}
		n.parked.putBack(list)
		return
	}
	kept, of, opened := list[:0], list[0].of, map[connectionID]bool{}
	for i, w := range list {
		again := mayApplyLater(&copies[i], results[i])
		if results[i] == report.CopyInserted && !copies[i].HasEnded() {
			opened[connectionIDOf(&copies[i])] = true
		}
		if again && time.Since(w.arrived) < parkedTime {
			kept = append(kept, w)
			continue
		}
		w.of.mu.Lock()
		w.of.parked--
		if again {
			w.of.dropped++
		} else {
			w.of.results[results[i]]++
		}
		w.of.mu.Unlock()
	}
	if len(opened) > 0 { // these connections were missing when their ends were applied
		if err := n.applyOwnEnds(ctx, of, opened, func() error { return nil }); err != nil && ctx.Err() == nil {
			n.Log.Error("connections of other nodes cannot be inserted", "error", err)
		}
	}
	n.parked.putBack(kept)
}
