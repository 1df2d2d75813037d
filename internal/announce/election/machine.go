// Package election elects the node that owns the VIPs of an instance: each of two nodes claims a
// role in its BFD packets, and takes over when the other one is silent
// (docs/adr/0086-roles-by-bfd.md).
package election

import (
	"time"

	"loxilb/internal/lb"
)

// StartWait is how long a starting node listens for its peer before it becomes MASTER alone. The
// peer sends at least a packet per second, even if the session is down.
const StartWait = 3 * time.Second

// aloneMargin is how often a MASTER without a peer extends its lease, which lasts for StartWait.
const aloneMargin = StartWait / 4

// Rank decides between two nodes: the higher priority, then the higher address.
type Rank struct {
	Priority uint8
	Higher   bool // this node's address is higher than its peer's
	Preempt  bool // take over from a node that it outranks
}

// Machine is the election of one instance on one node, without clocks and sockets.
type Machine struct {
	rank       Rank
	role       lb.Role
	reason     string    // the reason of the role, in words
	ordered    bool      // an operator chose the role, which holds until the next transition
	aloneAfter time.Time // earliest time at which this node becomes MASTER alone
	lease      time.Time // when the peer takes over unless it hears this node; zero: no session
	aloneUntil time.Time // end of the lease of a MASTER without a peer; zero: none
	peer       peer

	inherited bool // lease is from an earlier process, whose session the peer may still see

	declines          string // why this node hands over to its peer; empty: it takes part
	demandsSuppressed bool   // this node does not preempt
	// isolated means that this node itself lost the network, or has not heard its peer since it
	// started. As MASTER it yields to a peer that served meanwhile, whatever their ranks.
	isolated bool
	// overrules means that an operator made the peer MASTER, then this node, and the peer has
	// not heard of that yet.
	overrules bool
}

// peer is the known state of the other node.
type peer struct {
	up          bool // the session is up
	heard       bool // a packet arrived within the detection time
	makesClaims bool
	entry       Entry
	restartEnd  time.Time
	yieldAt     time.Time     // when a MASTER yields if it hears the peer, but is not heard
	timeout     time.Duration // detection time
}

// Lease is the time until which a node owns the VIPs of an instance. The zero value is no lease.
type Lease struct {
	Until time.Time
	Alone bool // no peer sees this node; a starting one listens for StartWait
}

// NewMachine returns the election of a node that starts with a stored role, and the lease of an
// earlier process. Without a lease, the peer cannot have taken over meanwhile.
func NewMachine(r Rank, stored lb.Role, lease Lease, now time.Time) *Machine {
	m := &Machine{rank: r, role: lb.RoleBackup, reason: "listening for the peer", aloneAfter: now.Add(StartWait), isolated: true}
	switch {
	case stored == lb.RoleFault || stored == lb.RoleStop:
		m.role, m.reason = stored, "set before the start"
	case stored == lb.RoleMaster && (lease.Until.IsZero() || now.Before(lease.Until)):
		m.role, m.reason, m.isolated = stored, "it was MASTER before", false
		if m.inherited = !lease.Alone && !lease.Until.IsZero(); m.inherited {
			m.lease = lease.Until
		}
	}
	m.extendAlone(now)
	return m
}

// Lease returns the lease of this node, or none if it is not MASTER.
func (m *Machine) Lease() Lease {
	switch {
	case m.role != lb.RoleMaster:
		return Lease{}
	case m.lease.IsZero():
		return Lease{m.aloneUntil, true}
	}
	return Lease{m.lease, false}
}

// Role returns the role of this node, and why it has it.
func (m *Machine) Role() (lb.Role, string) { return m.role, m.reason }

// SetRank changes the rank.
func (m *Machine) SetRank(r Rank, now time.Time) {
	m.rank = r
	m.Tick(now)
}

// SetByOperator records a role that an operator has set.
func (m *Machine) SetByOperator(role lb.Role, now time.Time) {
	m.ordered = role == lb.RoleMaster || role == lb.RoleBackup
	m.role, m.reason = role, "set by an operator"
	if role == lb.RoleUnknown { // the election decides again
		m.role, m.reason = lb.RoleBackup, "left to the election"
	}
	if role != lb.RoleBackup {
		m.aloneAfter = time.Time{}
	}
	if role == lb.RoleMaster {
		m.isolated, m.overrules = false, m.peer.up && m.peer.entry.Claim == Ordered
	}
	m.Tick(now)
}

// Decline makes this node hand over to its peer while why is not empty. A MASTER without a peer
// stays MASTER.
func (m *Machine) Decline(why string, now time.Time) {
	m.declines = why
	m.Tick(now)
}

// SuppressDemands sets whether this node refrains from preempting a MASTER.
func (m *Machine) SuppressDemands(on bool, now time.Time) {
	m.demandsSuppressed = on
	m.Tick(now)
}

// Sent records that the peer was sent a packet while the session is up: it detects no failure
// before the lease ends.
func (m *Machine) Sent(lease time.Time) { m.lease, m.inherited = lease, false }

// Heard records a packet of the peer. speaks means that the peer takes part in elections; restart
// is the time that it requests for a restart, or 0.
func (m *Machine) Heard(up, speaks bool, e Entry, restart, timeout time.Duration, now time.Time) {
	m.checkLease(now)
	before := m.peer
	m.peer = peer{up: up, heard: true, makesClaims: speaks, entry: e, yieldAt: before.yieldAt, timeout: timeout}
	if restart > 0 {
		m.peer.restartEnd = now.Add(restart)
	}
	if up && !before.up {
		m.aloneAfter = time.Time{}
	}
	if up || e.Claim < Master {
		m.peer.yieldAt = time.Time{}
	} else if m.peer.yieldAt.IsZero() {
		m.peer.yieldAt = now.Add(timeout)
	}
	if up && before.up && e.Claim == Ordered && before.entry.Claim < Ordered && m.role == lb.RoleMaster {
		m.setRole(lb.RoleBackup, "an operator made the peer MASTER") // also if one made this node MASTER before
	}
	if m.isolated && speaks && e.Claim >= Master && m.role == lb.RoleMaster {
		m.setRole(lb.RoleBackup, "the peer is MASTER, and this node was alone")
	}
	m.isolated, m.overrules = false, m.overrules && up && e.Claim == Ordered
	m.decide(now)
}

// Lost records that the peer was silent for the detection time, or has left. isolated means that
// this node was unreachable.
func (m *Machine) Lost(isolated bool, now time.Time) {
	m.checkLease(now)
	m.isolated, m.overrules = m.isolated || isolated, false
	if m.peer.up {
		m.ordered = false
	}
	m.peer = peer{restartEnd: m.peer.restartEnd, entry: Entry{Priority: m.peer.entry.Priority}}
	m.lease, m.inherited = time.Time{}, false
	if isolated && m.role == lb.RoleMaster {
		m.reason = "the link of this node is down"
	}
	m.decide(now)
}

// Tick decides again after time has passed.
func (m *Machine) Tick(now time.Time) {
	m.checkLease(now)
	m.decide(now)
}

// checkLease demotes a MASTER that could not send for so long that its peer has taken over, or that
// did not run for so long that a peer may have started.
func (m *Machine) checkLease(now time.Time) {
	over := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case over(m.lease):
		heard := m.peer.up || m.inherited
		m.lease, m.inherited = time.Time{}, false
		if heard {
			m.demote("this node was silent for the detection time", now)
		}
		m.extendAlone(now)
	case m.lease.IsZero() && over(m.aloneUntil):
		m.aloneUntil, m.isolated = time.Time{}, true
		m.demote("this node did not run for a while", now)
	}
}

func (m *Machine) demote(why string, now time.Time) {
	if m.role != lb.RoleMaster {
		return
	}
	m.setRole(lb.RoleBackup, why)
	m.aloneAfter = now.Add(StartWait)
	m.peer.up = false // until a packet reports the peer's new state
}

// extendAlone extends the lease of a MASTER without a peer: it depends on this process
// alone. It ends no later than a peer that starts becomes MASTER.
func (m *Machine) extendAlone(now time.Time) {
	m.aloneUntil = time.Time{}
	if m.role == lb.RoleMaster && m.lease.IsZero() {
		m.aloneUntil = now.Add(StartWait)
	}
}

// Next returns when Tick is due; zero: no time changes anything.
func (m *Machine) Next() time.Time {
	var next time.Time
	var extend time.Time
	if !m.aloneUntil.IsZero() {
		extend = m.aloneUntil.Add(aloneMargin - StartWait)
	}
	for _, t := range [...]time.Time{m.aloneAfter, m.peer.restartEnd, m.peer.yieldAt, m.lease, extend} {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// Claim returns this node's claim.
func (m *Machine) Claim(now time.Time) Entry {
	e := Entry{Claim: Declines, Priority: m.rank.Priority, Grants: now.Before(m.peer.restartEnd) && m.role != lb.RoleMaster}
	switch {
	case m.declines != "":
	case m.role == lb.RoleMaster && m.isolated:
		e.Claim = Backup
	case m.role == lb.RoleMaster && m.ordered:
		e.Claim = Ordered
	case m.role == lb.RoleMaster:
		e.Claim = Master
	case m.role == lb.RoleBackup && m.preempts():
		e.Claim = Preempts
	case m.role == lb.RoleBackup && !m.ordered:
		e.Claim = Backup
	}
	return e
}

// Granted reports whether the peer waits for the restart of this node.
func (m *Machine) Granted() bool { return m.peer.entry.Grants }

func (m *Machine) preempts() bool {
	return m.rank.Preempt && !m.demandsSuppressed && !m.ordered && m.peer.up && m.peer.entry.Claim == Master && m.outranks()
}

func (m *Machine) outranks() bool {
	if m.rank.Priority != m.peer.entry.Priority {
		return m.rank.Priority > m.peer.entry.Priority
	}
	return m.rank.Higher
}

func (m *Machine) setRole(role lb.Role, why string) {
	if m.role != role {
		m.role, m.reason, m.ordered = role, why, false
	}
}

func (m *Machine) decide(now time.Time) {
	defer m.extendAlone(now)
	for _, t := range [...]*time.Time{&m.aloneAfter, &m.peer.restartEnd} {
		if !now.Before(*t) {
			*t = time.Time{}
		}
	}
	if m.role != lb.RoleMaster && m.role != lb.RoleBackup {
		return // FAULT and STOP hold until an operator sets another role
	}
	switch {
	case m.peer.up && m.peer.makesClaims:
		m.negotiate(now)
	case m.peer.up:
		m.reason = "the peer makes no claims: it neither gives nor takes roles"
	case m.peer.heard && m.peer.entry.Claim >= Master:
		m.yieldUnheard(now)
	case m.peer.heard && m.peer.makesClaims:
		// The session is about to be up.
	case m.aloneAfter.IsZero() && m.peer.restartEnd.IsZero() && !m.ordered && m.declines == "":
		m.setRole(lb.RoleMaster, "the peer was silent")
	}
}

// yieldUnheard handles a MASTER that this node hears while the session is not up. Either it is
// about to be, as after a partition, or the peer does not hear this node.
func (m *Machine) yieldUnheard(now time.Time) {
	m.aloneAfter = time.Time{}
	if m.role != lb.RoleMaster {
		return
	}
	if !m.outranks() || !m.peer.yieldAt.IsZero() && !now.Before(m.peer.yieldAt) {
		m.setRole(lb.RoleBackup, "the peer is MASTER, and does not hear this node")
	}
}

// negotiate decides while both nodes hear each other.
func (m *Machine) negotiate(now time.Time) {
	mine, theirs := m.Claim(now).Claim, m.peer.entry.Claim
	if m.role == lb.RoleMaster {
		if theirs >= Master && !m.overrules && (theirs > mine || theirs == mine && !m.outranks()) {
			m.setRole(lb.RoleBackup, "the peer is MASTER")
		}
		return
	}
	switch {
	case m.ordered:
	case m.declines != "":
		m.reason = m.declines
	case theirs >= Master:
		m.reason = "the peer is MASTER"
	case theirs == Declines:
		m.setRole(lb.RoleMaster, "the peer declines")
	case theirs == Backup && m.outranks():
		m.setRole(lb.RoleMaster, "this node has the higher rank")
	}
}
