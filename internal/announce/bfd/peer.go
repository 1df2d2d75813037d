// Package bfd implements Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode, over
// one hop (RFC 5881) or several (RFC 5883), without authentication. It detects a silent neighbor
// within a few hundred milliseconds. A peer can be any implementation of BFD. Two loxilb nodes
// append messages to the control section of packets, which others ignore.
package bfd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	reopenDelay         = time.Second // before failed sockets are reopened
	drainTime           = time.Second // for reading a waiting packet
	finalPackets        = 3           // that end a session, as one may be lost
	finalPacketInterval = 10 * time.Millisecond
	idleWait            = time.Hour
	maxBacklog          = 1 << 16 // packets that wait in a socket
)

// Config is the configuration of a session.
type Config struct {
	Remote     netip.Addr
	Source     netip.Addr    // invalid: chosen by the route
	Interval   time.Duration // of sent and of expected packets
	Multiplier uint8         // packets that may be missing
	Multihop   bool
}

func (c *Config) port() uint16 { return uint16(Port(c.Multihop)) }

// Port returns the UDP port at which sessions receive.
func Port(multihop bool) int {
	if multihop {
		return multihopPort
	}
	return singleHopPort
}

// Watcher is notified by the goroutine of a session, so its methods must not wait for the session.
type Watcher interface {
	// Extra returns what follows the control section of the next packet.
	Extra() []byte
	// Heard reports each packet of the peer, after it changed the session; extra is valid
	// during the call.
	Heard(s Status, extra []byte)
	// Lost reports that the detection time has passed.
	Lost(s Status)
	// Sent reports that a packet was sent, and when the peer detects a failure if no other packet
	// follows.
	Sent(at, detected time.Time, state State)
}

// Status describes a session.
type Status struct {
	State      State
	Since      time.Time     // of the state
	Remote     State         // that the peer has of the session
	Reason     string        // why the session is not up; empty if it is up or never was
	Local      netip.Addr    // invalid: no socket is open
	Detection  time.Duration // time without a packet after which the peer is down
	Interval   time.Duration // of sent packets, before jitter
	Sent       uint64        // packets
	Received   uint64
	Discarded  uint64 // not of the session, or invalid
	Failures   uint64 // how often the session has ended
	LastFailed time.Time
}

// Peer is a session with a neighbor.
type Peer struct {
	watcher Watcher
	do      func(func() error) error // runs a function in the network namespace

	detected time.Time // when the peer detects a failure without another packet; only used by Run

	mu            sync.Mutex
	config        Config
	sockets       *sockets // nil: not open
	status        Status
	configChanged bool
	sendNow       bool
	quick         bool // the peer takes part in elections: see quickStart
}

// NewPeer returns a session for Run. do runs a function in the network namespace of the sockets;
// nil: the current one.
func NewPeer(c Config, w Watcher, do func(func() error) error) *Peer {
	if do == nil {
		do = func(f func() error) error { return f() }
	}
	return &Peer{config: c, watcher: w, do: do, status: Status{State: Down, Since: time.Now()}}
}

// Status returns the session's state.
func (p *Peer) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Configure changes intervals and the multiplier. Another address needs another Peer.
func (p *Peer) Configure(c Config) {
	p.mu.Lock()
	p.configChanged = p.configChanged || p.config != c
	p.config = c
	p.wake()
	p.mu.Unlock()
}

// Send sends a packet soon, as Extra has changed.
func (p *Peer) Send() {
	p.mu.Lock()
	p.sendNow = true
	p.wake()
	p.mu.Unlock()
}

// EnableQuickStart makes the session send packets ten times as often while it is down, which RFC
// 5880 forbids unless both ends agree.
func (p *Peer) EnableQuickStart() {
	p.mu.Lock()
	p.configChanged = p.configChanged || !p.quick
	p.quick = true
	p.mu.Unlock()
}

// wake interrupts the wait for a packet. The caller holds the lock.
func (p *Peer) wake() {
	if p.sockets != nil {
		_ = p.sockets.in.SetReadDeadline(time.Unix(1, 0)) // fails only if the socket is closed
	}
}

// Run maintains the session until ctx ends; then it notifies the peer that the session is down
// administratively, unless quiet returns true.
func (p *Peer) Run(ctx context.Context, quiet func() bool) {
	defer context.AfterFunc(ctx, p.Send)()
	p.mu.Lock()
	s := newSession(p.config.Interval, p.config.Multiplier)
	p.mu.Unlock()
	for ctx.Err() == nil {
		err := p.open()
		if err == nil {
			err = p.exchange(ctx, s, quiet)
		}
		if err != nil && ctx.Err() == nil {
			p.fail(s, err)
			timer := time.NewTimer(reopenDelay)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

func (p *Peer) open() error {
	p.mu.Lock()
	c := p.config
	p.mu.Unlock()
	var s *sockets
	err := p.do(func() (err error) { s, err = open(&c); return err })
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.sockets, p.status.Local = s, s.local
	p.mu.Unlock()
	return nil
}

// fail records why no packets are sent. The peer detects that, too.
func (p *Peer) fail(s *session, err error) {
	p.mu.Lock()
	sockets := p.sockets
	p.sockets, p.status.Local = nil, netip.Addr{}
	p.mu.Unlock()
	if sockets != nil {
		_ = sockets.close() // they failed
	}
	s.deadline = time.Now()
	p.expire(s, time.Now())
	p.mu.Lock()
	p.status.Reason = err.Error()
	p.mu.Unlock()
}

// exchange sends and receives packets until a socket fails or ctx ends.
func (p *Peer) exchange(ctx context.Context, s *session, quiet func() bool) error {
	due := time.Now()
	chosen := due // when the source was last compared with the routes
	for {
		now := time.Now()
		p.apply(s)
		if ctx.Err() != nil {
			return p.leave(s, quiet())
		}
		if !s.deadline.IsZero() && !now.Before(s.deadline) {
			if p.drain(s) { // packets arrived while this process was suspended
				continue
			}
			p.expire(s, time.Now())
			due = now
		}
		if s.state != Up && now.Sub(chosen) > reopenDelay {
			chosen = now
			if err := p.checkSource(); err != nil {
				return err
			}
		}
		if s.reply || p.takeSendNow() || !now.Before(due) {
			p.send(s)
			due = now.Add(idleWait)
			if d := s.interval(); d > 0 {
				due = now.Add(s.jittered(d))
			}
		}
		wait := due
		if !s.deadline.IsZero() && s.deadline.Before(wait) {
			wait = s.deadline
		}
		state := s.state
		if err := p.receive(s, wait); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if s.state != state { // the peer learns of it at once (RFC 5880, 6.8.7)
			due = time.Now()
		}
	}
}

// apply applies a changed configuration.
func (p *Peer) apply(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.configChanged {
		p.configChanged = false
		s.quick = p.quick
		s.configure(p.config.Interval, p.config.Multiplier)
	}
}

func (p *Peer) takeSendNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.sendNow
	p.sendNow = false
	return now
}

// checkSource returns an error if the routes choose another source address now, or if the interface
// of a link-local address was made again.
func (p *Peer) checkSource() error {
	p.mu.Lock()
	c, local, remote := p.config, p.sockets.local, p.sockets.remote
	p.mu.Unlock()
	return p.do(func() error {
		switch to, err := withZoneIndex(c.Remote); {
		case err != nil:
			return err
		case to != remote:
			return fmt.Errorf("interface %s was created again", c.Remote.Zone())
		case c.Source.IsValid():
			return nil
		}
		now, err := sourceTo(remote)
		if err == nil && now.WithZone(local.Zone()) != local {
			err = fmt.Errorf("the source address changes from %s to %s", local, now)
		}
		return err
	})
}

func (p *Peer) send(s *session) {
	p.endStalled(s)
	packet := s.packet()
	packet.Extra = p.watcher.Extra()
	var buffer [maxPayload]byte
	at := time.Now()
	_, err := p.sockets.out.Write(packet.Append(buffer[:0]))
	if err != nil { // of an earlier packet; the peer may be starting
		p.recordRefusal(s, err)
		return
	}
	p.mu.Lock()
	p.status.Sent++
	p.status.Interval = s.interval()
	p.mu.Unlock()
	p.detected = at.Add(s.peerDetection())
	p.watcher.Sent(at, p.detected, s.state)
}

// recordRefusal records that the host of the peer runs, without a session with this address.
func (p *Peer) recordRefusal(s *session, err error) {
	if s.state != Down || !errors.Is(err, syscall.ECONNREFUSED) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Reason = fmt.Sprintf("%s refuses BFD packets: it has no session with %s", p.config.Remote, p.status.Local)
}

// receive waits for a packet until a time, and handles it.
func (p *Peer) receive(s *session, until time.Time) error {
	p.mu.Lock()
	if p.sendNow || p.configChanged {
		until = time.Unix(1, 0)
	}
	err := p.sockets.in.SetReadDeadline(until)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.read(s)
}

// read reads a packet, and handles it.
func (p *Peer) read(s *session) error {
	data, from, ttl, err := p.sockets.read()
	if err != nil {
		return err
	}
	if p.endStalled(s) {
		return nil
	}
	p.mu.Lock()
	valid := from.Addr() == p.config.Remote.WithZone(from.Addr().Zone()) && (p.config.Multihop || ttl == maxTTL)
	p.mu.Unlock()
	packet, err := Parse(data)
	if !valid || err != nil || !s.receive(&packet, time.Now()) {
		p.mu.Lock()
		p.status.Discarded++
		p.mu.Unlock()
		return nil
	}
	p.mu.Lock()
	p.status.Received++
	p.update(s)
	status := p.status
	p.mu.Unlock()
	p.watcher.Heard(status, bytes.Clone(packet.Extra))
	return nil
}

// drain handles waiting packets, and reports whether the detection time continues. Without it, a
// process that was suspended for a while would end sessions whose packets it has not read yet.
func (p *Peer) drain(s *session) bool {
	for p.sockets.readable() {
		if p.sockets.in.SetReadDeadline(time.Now().Add(drainTime)) != nil || p.read(s) != nil {
			break
		}
	}
	return time.Now().Before(s.deadline)
}

// endStalled ends the session, and returns true, if this process was silent for so long that the
// peer has ended it. It discards waiting packets, which are older.
func (p *Peer) endStalled(s *session) bool {
	if s.state != Up || time.Now().Before(p.detected) {
		return false
	}
	for range maxBacklog {
		if !p.sockets.readable() {
			break
		}
		if _, _, _, err := p.sockets.read(); err != nil {
			break
		}
	}
	s.deadline = time.Now()
	p.expire(s, s.deadline)
	return true
}

func (p *Peer) expire(s *session, now time.Time) {
	s.expire(now)
	p.mu.Lock()
	p.update(s)
	status := p.status
	p.mu.Unlock()
	p.watcher.Lost(status)
}

// update records the session's state. The caller holds the lock.
func (p *Peer) update(s *session) {
	before, now := p.status.State, time.Now()
	p.status.State, p.status.Remote, p.status.Detection = s.state, s.remote.State, s.detection
	if before == s.state {
		return
	}
	p.status.Since = now
	if before == Up {
		p.status.Failures++
		p.status.LastFailed = now
	}
	switch {
	case s.state == Up:
		p.status.Reason = ""
	case s.state == Down && s.diagnostic == TimeExpired:
		p.status.Reason = fmt.Sprintf("no packet from %s for %s", p.config.Remote, s.detection)
	case s.state == Down && s.remote.State == AdminDown:
		p.status.Reason = p.config.Remote.String() + " ended the session on purpose"
	case s.state == Down:
		p.status.Reason = p.config.Remote.String() + " reports that the session is down"
	}
}

// leave ends the session on purpose, or leaves the peer to detect it.
func (p *Peer) leave(s *session, quiet bool) error {
	if !quiet {
		s.setState(AdminDown, AdminDownDiagn)
		for range finalPackets {
			p.send(s)
			time.Sleep(finalPacketInterval)
		}
	}
	p.mu.Lock()
	sockets := p.sockets
	p.sockets = nil
	p.mu.Unlock()
	return sockets.close()
}
