package election

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/announce/bfd"
	"loxilb/internal/lb"
)

const (
	// RestartTime is how long a peer waits for a node that restarts. Its kernel answers for the
	// VIPs and forwards meanwhile.
	RestartTime = 10 * time.Second
	// grantTime is how long a node that restarts waits until its peer has agreed to wait for
	// it.
	grantTime = 300 * time.Millisecond
	grantPoll = 10 * time.Millisecond
)

// Session is a BFD session, and the election of one instance.
type Session struct {
	Key      string // of the object
	Instance string // lb.InstanceKey
	Path     bfd.Config
	Priority uint8
	Preempt  bool
}

// Guard keeps leases where they outlive this process. Calls must be quick.
type Guard interface {
	// Own makes the kernel answer for the VIPs of an instance until a time; the zero time ends
	// that.
	Own(instance string, until time.Time)
	// Keep sets the elected instances. The kernel always answers for the VIPs of the others.
	Keep(instances []string)
	// Record stores the earliest lease for the next process.
	Record(Lease)
	// Recorded returns the lease that an earlier process has recorded.
	Recorded() Lease
}

// Status is a session and its election.
type Status struct {
	Session
	BFD         bfd.Status
	Role        lb.Role
	Why         string
	Since       time.Time // of the role
	MakesClaims bool      // the peer takes part in elections
	Claim       Claim     // the peer's
	Changes     uint64    // of the role
}

// Manager runs the sessions and elections of this node.
type Manager struct {
	guard    Guard
	do       func(func() error) error
	restarts func() bool
	notify   chan struct{} // capacity 1: roles may have changed
	timer    chan struct{} // capacity 1: Next may have changed

	mu                 sync.Mutex
	ctx                context.Context //nolint:containedctx // of Run: sessions that are set later run in it
	running            sync.WaitGroup
	paths              map[pathKey]*path
	elections          map[string]*election // by the instance's key
	drained            bool                 // for maintenance
	refused            bool                 // by nodes of the cluster
	connectionsMissing bool                 // this node lacks connections of the cluster
	endQuietly         bool                 // the daemon restarts, so sessions end without a final packet
	leasesHandedOver   bool                 // to the next process
	restart            time.Duration        // announced to peers
}

// pathKey identifies the packets of a session.
type pathKey struct {
	remote, source netip.Addr
	multihop       bool
}

func keyOf(c *bfd.Config) pathKey { return pathKey{c.Remote, c.Source, c.Multihop} }

// path is a BFD session; instances with the same peer share it.
type path struct {
	manager *Manager
	key     pathKey
	peer    *bfd.Peer
	cancel  context.CancelFunc
	state   bfd.State
}

// election is the election of an instance.
type election struct {
	Session
	machine     *Machine
	path        *path
	since       time.Time
	changes     uint64
	last        lb.Role
	makesClaims bool
	claim       Claim
	owned       time.Time // end of the kernel's lease, as last set
}

// NewManager returns a manager without sessions. do runs a function in the network namespace.
// restarts reports, when Run ends, whether another process continues soon.
func NewManager(g Guard, do func(func() error) error, restarts func() bool) *Manager {
	return &Manager{
		guard: g, do: do, restarts: restarts, notify: make(chan struct{}, 1), timer: make(chan struct{}, 1),
		paths: map[pathKey]*path{}, elections: map[string]*election{},
	}
}

// Changed receives when roles or the state of sessions may have changed.
func (m *Manager) Changed() <-chan struct{} { return m.notify }

// Run runs the sessions until ctx ends, and then notifies the peers whether this node restarts.
func (m *Manager) Run(ctx context.Context) {
	paths, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	m.mu.Lock()
	m.ctx = paths
	for _, p := range m.paths {
		m.start(p)
	}
	m.mu.Unlock()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(m.tick())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.timer:
		}
	}
	m.handOver()
	cancel()
	m.running.Wait()
}

// handOver hands the roles over to the peers, or asks the peers to wait for a restart. The kernel
// answers for the VIPs while they wait.
func (m *Manager) handOver() {
	if len(m.Roles()) == 0 {
		return
	}
	if !m.restarts() {
		m.release() // before peers take over
		return
	}
	m.mu.Lock()
	m.endQuietly, m.restart = true, RestartTime
	m.mu.Unlock()
	started := time.Now()
	for m.waitsForGrant() && time.Since(started) < grantTime {
		m.mu.Lock()
		for _, p := range m.paths {
			p.peer.Send()
		}
		m.mu.Unlock()
		time.Sleep(grantPoll)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.elections {
		if e.hasLease() && e.machine.Granted() {
			e.machine.Sent(started.Add(RestartTime))
		}
	}
	m.renewLeases()
	m.leasesHandedOver = true
}

// release ends all leases, for this process and the next one.
func (m *Manager) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for instance := range m.elections {
		m.guard.Own(instance, time.Time{})
	}
	m.guard.Record(Lease{Until: time.Now()})
	m.leasesHandedOver = true
}

// waitsForGrant reports whether a peer has not agreed to wait yet.
func (m *Manager) waitsForGrant() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.elections {
		if e.hasLease() && e.makesClaims && !e.machine.Granted() {
			return true
		}
	}
	return false
}

// tick lets elections that are due decide, and returns how long to wait for the next.
func (m *Manager) tick() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	next := now.Add(time.Hour)
	for _, e := range m.elections {
		if at := e.machine.Next(); !at.IsZero() && !now.Before(at) {
			m.update(e, func() { e.machine.Tick(now) })
		}
		if at := e.machine.Next(); !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	m.renewLeases()
	return time.Until(next)
}

// Set makes these the sessions. roles are the stored roles of instances, for new elections.
func (m *Manager) Set(list []Session, roles map[string]lb.Role) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := map[pathKey]bfd.Config{}
	keep := map[string]bool{}
	for _, s := range list {
		key := keyOf(&s.Path)
		keep[s.Instance] = true
		if c, shared := wanted[key]; !shared || s.Path.Interval*time.Duration(s.Path.Multiplier) < c.Interval*time.Duration(c.Multiplier) {
			wanted[key] = s.Path // the fastest of the sessions that share the path
		}
	}
	for key, p := range m.paths {
		if _, ok := wanted[key]; !ok {
			p.cancel()
			delete(m.paths, key)
		}
	}
	for key, c := range wanted {
		p := m.paths[key]
		if p == nil {
			p = &path{manager: m, key: key, cancel: func() {}}
			p.peer = bfd.NewPeer(c, p, m.do)
			m.paths[key] = p
			if m.ctx != nil {
				m.start(p)
			}
		}
		p.peer.Configure(c)
	}
	for instance := range m.elections {
		if !keep[instance] {
			delete(m.elections, instance)
		}
	}
	m.guard.Keep(slices.Collect(maps.Keys(keep)))
	for _, s := range list {
		m.setElection(s, roles[s.Instance])
	}
	m.renewLeases()
	m.signal()
}

// setElection makes or changes the election of a session's instance. A new path is a new election:
// the peer may be another node.
func (m *Manager) setElection(s Session, role lb.Role) {
	e, p, now := m.elections[s.Instance], m.paths[keyOf(&s.Path)], time.Now()
	if e == nil || e.path != p {
		var lease Lease
		if m.ctx == nil {
			lease = m.guard.Recorded()
		} else if role == lb.RoleUnknown || role == "" {
			role = lb.RoleMaster // this node owned the VIPs until now
		}
		e = &election{path: p, since: now, owned: now /* not notified yet */, machine: NewMachine(s.rank(netip.Addr{}), role, lease, now)}
		e.machine.declines, e.machine.demandsSuppressed = m.declineReason(), m.connectionsMissing
		e.last, _ = e.machine.Role()
		m.elections[s.Instance] = e
	}
	changed := e.Priority != s.Priority || e.Preempt != s.Preempt
	e.Session = s
	if changed {
		m.update(e, func() { e.machine.SetRank(s.rank(p.peer.Status().Local), now) })
	}
	p.peer.Send()
}

func (s *Session) rank(local netip.Addr) Rank {
	return Rank{Priority: s.Priority, Preempt: s.Preempt, Higher: local.Compare(s.Path.Remote) > 0}
}

// start runs a path. The caller holds the lock.
func (m *Manager) start(p *path) {
	ctx, cancel := context.WithCancel(m.ctx)
	p.cancel = cancel
	m.running.Go(func() { p.peer.Run(ctx, m.endsQuietly) })
}

func (m *Manager) endsQuietly() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.endQuietly
}

// SetByOperator records a role that an operator has set.
func (m *Manager) SetByOperator(instance string, role lb.Role) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.elections[instance]; e != nil {
		m.update(e, func() { e.machine.SetByOperator(role, time.Now()) })
	}
}

// Decline sets whether this node hands its roles over to its peers, for maintenance.
func (m *Manager) Decline(on bool) { m.updateDecline(func() { m.drained = on }) }

// SetCluster sets whether this node lacks connections of other nodes, which would break here: it
// then does not preempt a MASTER. If serving nodes refuse this one, it also hands its roles over.
func (m *Manager) SetCluster(held, refused bool) {
	m.updateDecline(func() { m.connectionsMissing, m.refused = held, refused })
}

func (m *Manager) updateDecline(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	why := m.declineReason()
	for _, e := range m.elections {
		if e.machine.declines != why {
			m.update(e, func() { e.machine.Decline(why, time.Now()) })
		}
		if e.machine.demandsSuppressed != m.connectionsMissing {
			m.update(e, func() { e.machine.SuppressDemands(m.connectionsMissing, time.Now()) })
		}
	}
}

// declineReason returns why this node hands its roles over, or "". The caller must hold mu.
func (m *Manager) declineReason() string {
	switch {
	case m.drained:
		return "maintenance"
	case m.refused:
		return "nodes of the cluster refuse this one"
	}
	return ""
}

// update changes an election. It sends a new claim to the peer at once, and reports a new role. The
// caller holds the lock.
func (m *Manager) update(e *election, change func()) {
	now := time.Now()
	before := e.machine.Claim(now)
	change()
	if e.machine.Claim(now) != before {
		e.path.peer.Send()
	}
	if role, _ := e.machine.Role(); role != e.last {
		e.last, e.since = role, now
		e.changes++
		m.renewLeases()
		m.signal()
	}
	wake(m.timer)
}

func (m *Manager) signal() { wake(m.notify) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// renewLeases passes the leases of all instances to the kernel, and stores the earliest one for the
// next process. A node that yields does not change the latter, since it still has to remove its
// VIPs. The caller must hold mu.
func (m *Manager) renewLeases() {
	if m.leasesHandedOver {
		return
	}
	var first Lease
	for instance, e := range m.elections {
		lease := e.machine.Lease()
		if lease.Until != e.owned {
			e.owned = lease.Until
			m.guard.Own(instance, lease.Until)
		}
		if !lease.Until.IsZero() && lease.precedes(first) {
			first = lease
		}
	}
	if !first.Until.IsZero() {
		m.guard.Record(first)
	}
}

// precedes reports whether the next process must respect a lease rather than another one. A peer
// that still sees this node takes over sooner than one that does not.
func (l Lease) precedes(other Lease) bool {
	if other.Until.IsZero() || l.Alone != other.Alone {
		return other.Until.IsZero() || other.Alone
	}
	return l.Until.Before(other.Until)
}

// hasLease reports whether the peer takes over if this node falls silent.
func (e *election) hasLease() bool {
	lease := e.machine.Lease()
	return !lease.Until.IsZero() && !lease.Alone
}

// Roles returns the roles by instance, and why.
func (m *Manager) Roles() map[string]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := map[string]Status{}
	for key, e := range m.elections {
		list[key] = e.status()
	}
	return list
}

// Statuses returns all sessions, in the order of their keys.
func (m *Manager) Statuses() []Status {
	return slices.SortedFunc(maps.Values(m.Roles()), func(a, b Status) int { return cmp.Compare(a.Key, b.Key) })
}

func (e *election) status() Status {
	s := Status{Session: e.Session, BFD: e.path.peer.Status(), Since: e.since, Changes: e.changes, MakesClaims: e.makesClaims, Claim: e.claim}
	s.Role, s.Why = e.machine.Role()
	return s
}
