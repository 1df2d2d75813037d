package reconcile

import (
	"cmp"
	"context"
	"errors"
	"time"

	"loxilb/internal/announce/bfd"
	"loxilb/internal/announce/election"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

// roleRetry is the wait before a role that could not be stored is stored again.
const roleRetry = time.Second

// errOvertaken abandons the commit of a role because an operator has set one meanwhile.
var errOvertaken = errors.New("an operator set the role meanwhile")

// Elections runs the BFD sessions of the store, and stores the roles that they elect, as a request
// would. The loops of services and routes follow the stored roles.
type Elections struct {
	*objectLoop[netobj.BFDSession]
	manager *election.Manager
	owner   string // of stored roles

	expected map[string]lb.Role   // last stored role of each elected instance
	states   map[string]bfd.State // of sessions, by key

	maintained bool
	changed    func() // called when sessions may have changed
	peerUp     func() // called when the session of a MASTER comes up
}

// NewElections returns the loop. It stores roles under the given owner, that of requests. It calls
// changed when sessions may have changed, and peerUp when the session of a MASTER comes up.
func NewElections(m *election.Manager, d *desired.State, owner string, changed, peerUp func(), o Observers) *Elections {
	e := &Elections{manager: m, owner: owner, changed: changed, peerUp: peerUp, expected: map[string]lb.Role{}, states: map[string]bfd.State{}}
	e.objectLoop = newObjectLoop(e, d, d.BFD, o)
	return e
}

// Begin stores the roles with which this process starts, before it acquires VIPs by the roles that
// an earlier process stored.
func (e *Elections) Begin() {
	e.set(e.desired.Snapshot())
	e.follow()
}

// Run runs sessions and elections until ctx ends.
func (e *Elections) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); e.manager.Run(ctx) }()
	e.objectLoop.Run(ctx)
	<-done
}

// Follow stores roles and reports changes of sessions until ctx ends.
func (e *Elections) Follow(ctx context.Context) {
	var retry <-chan time.Time
	for {
		changed := e.desired.Changed()
		if err := e.follow(); err != nil {
			e.Log.Error("role cannot be stored; trying again", "error", err)
			retry = time.After(roleRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-e.manager.Changed():
		case <-retry:
		}
	}
}

// Owning reports whether this node owns VIPs that a peer could take over, by stored and elected
// roles.
func (e *Elections) Owning() bool {
	snapshot := e.desired.Snapshot()
	stored := e.desired.Instances.Assigned(snapshot)
	for instance, s := range e.manager.Roles() {
		if s.BFD.State == bfd.Up && s.MakesClaims && (s.Role == lb.RoleMaster || stored[instance].Role.Owns()) {
			return true
		}
	}
	return false
}

// Apply passes all sessions to the manager.
func (e *Elections) Apply(_ context.Context, keys []string) []Outcome[string] {
	snapshot := e.desired.Snapshot()
	e.set(snapshot)
	return e.applyEach(snapshot, keys, func(netobj.BFDSession, bool, string) error { return nil })
}

func (e *Elections) set(snapshot *store.Snapshot) {
	var list []election.Session
	for s := range e.table.All(snapshot) {
		list = append(list, election.Session{
			Key: s.Key(), Instance: lb.InstanceKey(s.Instance), Priority: s.Priority, Preempt: s.Preempt,
			Path: bfd.Config{Remote: s.Remote, Source: s.Source, Interval: s.Interval, Multiplier: s.Retry, Multihop: s.Multihop},
		})
	}
	roles := map[string]lb.Role{}
	for key, one := range e.desired.Instances.Assigned(snapshot) {
		roles[key] = one.Role
	}
	e.manager.Set(list, roles)
	e.changed()
}

// leasedInstances returns the instances whose VIPs this node owns only while a lease lasts: elected
// instances, and instances whose role was set with a lease.
func leasedInstances(d *desired.State, snapshot *store.Snapshot) leased {
	list := leased(electedInstances(d, snapshot))
	for key, one := range d.Instances.Assigned(snapshot) {
		if one.Lease > 0 {
			list[key] = true
		}
	}
	return list
}

// electedInstances returns the instances with a BFD session, whose owner is elected.
func electedInstances(d *desired.State, snapshot *store.Snapshot) map[string]bool {
	list := map[string]bool{}
	for s := range d.BFD.All(snapshot) {
		list[lb.InstanceKey(s.Instance)] = true
	}
	return list
}

// follow passes roles that operators set to the elections, and stores elected roles.
func (e *Elections) follow() error {
	snapshot := e.desired.Snapshot()
	instances := e.desired.Instances.Assigned(snapshot)
	if maintenance := e.desired.Maintenance.OfThisNode(snapshot) != nil; maintenance != e.maintained {
		e.maintained = maintenance
		e.manager.Decline(maintenance)
	}
	all := e.manager.Roles()
	for instance := range e.expected {
		if _, elected := all[instance]; !elected {
			delete(e.expected, instance)
		}
	}
	var failed error
	for instance, s := range all {
		stored := cmp.Or(instances[instance].Role, lb.RoleUnknown)
		expected, known := e.expected[instance]
		if known && stored != expected {
			e.manager.SetByOperator(instance, stored)
			s = e.manager.Roles()[instance]
		}
		e.expected[instance] = stored
		if s.Role != stored && s.Role != "" {
			failed = errors.Join(failed, e.store(instance, stored, &s))
		}
		e.report(&s)
	}
	return failed
}

// store stores an elected role, unless an operator has changed it since it was read.
func (e *Elections) store(instance string, before lb.Role, s *election.Status) error {
	instances := e.desired.Instances
	options := store.CommitOptions{Owner: e.owner, Author: store.Author{Who: "loxilb", From: "BFD session " + s.Key, Doing: "role of " + instance + ": " + s.Why}}
	_, _, err := e.desired.CommitBy(options, func(tx *store.Tx) error {
		one, exists := instances.Assigned(tx)[instance]
		if cmp.Or(one.Role, lb.RoleUnknown) != before {
			return errOvertaken
		}
		if !exists {
			one.Name = instance
		}
		one.Role = s.Role
		return instances.Put(tx, one)
	})
	switch {
	case errors.Is(err, errOvertaken):
		return nil // the store has changed, so Follow calls follow again
	case err == nil:
		e.expected[instance] = s.Role
		e.Log.Info("role elected", "instance", instance, "role", s.Role, "was", before, "why", s.Why, "peer", s.Path.Remote)
	}
	return err
}

// report logs and publishes a change of a session's state.
func (e *Elections) report(s *election.Status) {
	before, known := e.states[s.Key]
	e.states[s.Key] = s.BFD.State
	if before == s.BFD.State || !known && s.BFD.State != bfd.Up || before != bfd.Up && s.BFD.State != bfd.Up {
		return
	}
	o := event.Object{ObjectKind: e.table.Name(), Key: s.Key, Action: event.Solved, Error: "the session is up"}
	log := e.Log.Info
	if s.BFD.State != bfd.Up {
		o.Action, o.Error, log = event.Failed, s.BFD.Reason, e.Log.Warn
	}
	meta, _ := e.table.Meta(e.desired.Snapshot(), s.Key)
	o.Version = meta.Version
	log("BFD session changes", "session", s.Key, "state", s.BFD.State, "reason", s.BFD.Reason)
	e.Events.Publish(o)
	if s.BFD.State == bfd.Up && s.Role == lb.RoleMaster {
		e.peerUp() // the peer may have announced the VIPs when its link came up, before it yielded
	}
}
