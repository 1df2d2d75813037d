package bfd

import (
	"math/rand/v2"
	"time"
)

const (
	// slowStart is the least interval of sent packets until a session is up (RFC 5880, 6.8.3).
	slowStart = time.Second
	// quickStart is the interval between two nodes that elect roles. After a partition both own
	// the VIPs until one of them hears the other.
	quickStart = 100 * time.Millisecond
)

// session is the state machine of RFC 5880 in asynchronous mode, without sockets and clocks. Its
// names are from section 6.8.1.
type session struct {
	timing                // as announced
	previousTiming timing // the timing before a change that the peer has not confirmed; zero: none
	nextTiming     timing // the next change, which waits until the peer has confirmed this one; zero: none
	quick          bool   // use quickStart

	state       State
	diagnostic  Diagnostic
	localDiscr  uint32
	remoteDiscr uint32
	remote      Packet        // the last accepted one, without Extra
	polling     bool          // the peer has not confirmed our intervals yet
	detection   time.Duration // time without a packet after which the peer is down
	deadline    time.Time     // end of the detection time; zero: no packet is expected
	reply       bool          // a packet with the final bit is due
}

// timing has the least intervals of packets that a session sends and accepts, and the number of its
// packets that may be missing.
type timing struct {
	minTx, minRx time.Duration
	multiplier   uint8
}

func newSession(interval time.Duration, multiplier uint8) *session {
	return &session{
		timing: timing{interval, interval, multiplier},
		state:  Down, localDiscr: rand.Uint32N(1<<32-1) + 1,
	}
}

// receive handles a packet of the peer, and reports whether it belongs to the session. A packet
// that ends a session must contain one of its discriminators, which a stranger does not know. Until
// the session is up, any packet may begin it: the first one may have been a stranger's, or an ended
// process's.
func (s *session) receive(p *Packet, now time.Time) bool {
	switch {
	case p.Your != 0 && p.Your != s.localDiscr:
		return false
	case p.Your == 0 && s.state == Up && p.My != s.remoteDiscr:
		return false // a restarted peer waits until the detection time has passed
	}
	s.remote = *p
	s.remote.Extra = nil
	s.remoteDiscr = p.My
	if p.Final && s.polling {
		s.confirm()
	}
	s.detection = time.Duration(p.Multiplier) * max(s.minRx, s.previousTiming.minRx, p.MinTx)
	s.deadline = now.Add(s.detection)
	s.reply = s.reply || p.Poll
	if s.state == AdminDown {
		return true
	}
	switch {
	case p.State == AdminDown:
		if s.state != Down {
			s.setState(Down, NeighborDown)
		}
	case s.state == Down && p.State == Down:
		s.setState(Init, NoDiagnostic)
	case s.state == Down && p.State == Init, s.state == Init && p.State >= Init:
		s.setState(Up, NoDiagnostic)
		s.polling = true // the interval changes from the slow one
	case s.state == Up && p.State == Down:
		s.setState(Down, NeighborDown)
	}
	return true
}

// expire ends the session if its detection time has passed.
func (s *session) expire(now time.Time) {
	if s.deadline.IsZero() || now.Before(s.deadline) {
		return
	}
	s.deadline, s.remoteDiscr = time.Time{}, 0
	if s.state == Init || s.state == Up {
		s.setState(Down, TimeExpired)
	}
}

func (s *session) setState(state State, why Diagnostic) {
	s.state = state
	s.confirm()
	if state != Init { // Init does not explain why the session was down
		s.diagnostic = why
	}
}

// configure changes the intervals. While the session is up, faster packets are not expected, and
// slower ones not sent, before the peer has confirmed the change (RFC 5880, 6.8.3). A further
// change waits until then: the final bit does not identify the change that it confirms.
func (s *session) configure(interval time.Duration, multiplier uint8) {
	wanted := timing{interval, interval, multiplier}
	switch {
	case s.state != Up:
		s.timing = wanted
	case s.polling:
		s.nextTiming = wanted
	case wanted != s.timing:
		s.previousTiming, s.timing, s.polling = s.timing, wanted, true
	}
}

// confirm ends a change of the timing, when the peer has confirmed it or the session restarts.
func (s *session) confirm() {
	next := s.nextTiming
	s.polling, s.previousTiming, s.nextTiming = false, timing{}, timing{}
	if next != (timing{}) {
		s.configure(next.minTx, next.multiplier)
	}
}

// announcedMinTx returns the interval that the session announces for its packets.
func (s *session) announcedMinTx() time.Duration {
	if s.state == Up {
		return s.minTx
	}
	if s.quick {
		return max(s.minTx, quickStart)
	}
	return max(s.minTx, slowStart)
}

// interval returns the time between two packets to the peer, before jitter; 0: the peer wants none.
func (s *session) interval() time.Duration {
	least := s.announcedMinTx()
	if s.previousTiming.minTx != 0 {
		least = min(least, s.previousTiming.minTx)
	}
	switch {
	case s.remoteDiscr == 0:
		return least
	case s.remote.MinRx == 0:
		return 0
	}
	return max(least, s.remote.MinRx)
}

// jittered reduces an interval by up to a quarter, so sessions do not synchronize (RFC 5880,
// 6.8.7). With a multiplier of 1 it is at most 90%, so one late packet does not end the session.
func (s *session) jittered(d time.Duration) time.Duration {
	if s.multiplier == 1 || s.previousTiming.multiplier == 1 {
		return d*3/4 + rand.N(d*15/100+1)
	}
	return d*3/4 + rand.N(d/4+1)
}

// peerDetection returns the time without a packet after which the peer detects a failure. Packets
// with a change may be lost, so the shorter time counts until the peer has confirmed it.
func (s *session) peerDetection() time.Duration {
	detection := s.detectionTime(s.announcedMinTx(), s.multiplier)
	if s.previousTiming.multiplier != 0 {
		detection = min(detection, s.detectionTime(s.previousTiming.minTx, s.previousTiming.multiplier))
	}
	return detection
}

func (s *session) detectionTime(minTx time.Duration, multiplier uint8) time.Duration {
	return time.Duration(multiplier) * max(minTx, s.remote.MinRx)
}

// packet returns the next packet to send.
func (s *session) packet() Packet {
	p := Packet{
		State: s.state, Diagnostic: s.diagnostic, Multiplier: s.multiplier, My: s.localDiscr, Your: s.remoteDiscr,
		MinTx: s.announcedMinTx(), MinRx: s.minRx, Poll: s.polling, Final: s.reply,
	}
	if p.Final {
		p.Poll = false // RFC 5880, 6.5: never both
	}
	s.reply = false
	return p
}
