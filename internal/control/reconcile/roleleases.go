package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb"
)

const (
	// renewals is the minimum number of renewals during a lease.
	renewals = 10
	// longestRenewal bounds the time between renewals. If the daemon hangs, its lease ends up
	// to this much earlier than its controller assumes, and the VIPs have no owner in between.
	longestRenewal = time.Second
)

// InstanceLeases holds the leases of instances: the kernel answers for their VIPs until the lease
// ends. It is a part of *leases.Leases.
type InstanceLeases interface {
	// Own sets the end of a lease. The zero time means that this node does not own the VIPs.
	Own(instance string, until time.Time)
	// Keep removes the leases of all instances but these.
	Keep(instances []string)
	// LeaseEnd returns the end of a lease as uptime of the machine, or 0 if this node does not
	// own the VIPs. It returns false if there is no lease.
	LeaseEnd(instance string) (uptime time.Duration, exists bool)
}

// RoleLeases renews the leases of roles that were set with one. The controller that set the role
// elects another MASTER while this daemon does not run. Once the lease has ended, the kernel no
// longer answers for the VIPs, and this node is BACKUP until a role is set. Instances with a BFD
// session have the leases of their election.
type RoleLeases struct {
	Observers
	desired *desired.State
	table   InstanceLeases
	owner   string // of stored roles
	changed func() // called when other instances have a lease
	keys    []string
	uptime  func() time.Duration
}

// NewRoleLeases returns the loop. It stores roles under the given owner, that of requests, and
// calls changed when other instances have a lease.
func NewRoleLeases(d *desired.State, t InstanceLeases, owner string, changed func(), o Observers) *RoleLeases {
	return &RoleLeases{Observers: o, desired: d, table: t, owner: owner, changed: changed, uptime: monotime.Uptime}
}

// Begin makes this node BACKUP of the instances whose leases have ended, before it acquires their
// VIPs. A missing lease has ended, too: the earlier process removed its programs, or the machine
// was restarted.
func (r *RoleLeases) Begin() {
	for key, one := range r.leased(r.desired.Snapshot()) {
		if end, exists := r.table.LeaseEnd(key); one.Role == lb.RoleMaster && (!exists || r.isOver(end)) {
			r.demote(key)
		}
	}
	r.renew()
}

// Run renews leases until ctx ends. The last renewal gives the next process the whole time to
// start.
func (r *RoleLeases) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := r.desired.Changed()
		wait := r.renew()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	r.renew()
}

// renew renews the leases, and returns how long to wait before it is called again.
func (r *RoleLeases) renew() time.Duration {
	wait := time.Hour
	list := r.leased(r.desired.Snapshot())
	keys := make([]string, 0, len(list))
	for key, one := range list {
		keys = append(keys, key)
		end, exists := r.table.LeaseEnd(key)
		switch {
		case !one.Role.Owns():
			r.table.Own(key, time.Time{})
			continue
		case exists && end != 0 && r.isOver(end): // this process, or the machine, was suspended
			r.demote(key)
			wait = min(wait, time.Second) // in case storing BACKUP failed
			continue
		}
		r.table.Own(key, time.Now().Add(one.Lease))
		wait = min(wait, one.Lease/renewals, longestRenewal)
	}
	r.table.Keep(keys)
	if slices.Sort(keys); !slices.Equal(keys, r.keys) {
		r.keys = keys
		r.changed()
	}
	return wait
}

func (r *RoleLeases) isOver(end time.Duration) bool { return r.uptime() >= end }

// leased returns the instances whose roles have a lease and are not elected.
func (r *RoleLeases) leased(snapshot *store.Snapshot) map[string]lb.Instance {
	list := map[string]lb.Instance{}
	elected := electedInstances(r.desired, snapshot)
	for key, one := range r.desired.Instances.Assigned(snapshot) {
		if one.Lease > 0 && !elected[key] {
			list[key] = one
		}
	}
	return list
}

// demote makes this node BACKUP of an instance, unless its role was changed meanwhile.
func (r *RoleLeases) demote(instance string) {
	const why = "its lease ended while this daemon did not run"
	options := store.CommitOptions{Owner: r.owner, Author: store.Author{Who: "loxilb", From: "lease", Doing: "role of " + instance + ": " + why}}
	_, _, err := r.desired.CommitBy(options, func(tx *store.Tx) error {
		one := r.desired.Instances.Assigned(tx)[instance]
		if one.Role != lb.RoleMaster {
			return errOvertaken
		}
		one.Role = lb.RoleBackup
		return r.desired.Instances.Put(tx, one)
	})
	switch {
	case errors.Is(err, errOvertaken):
	case err != nil:
		r.Log.Error("role cannot be stored; trying again", "instance", instance, "error", err)
	default:
		r.Log.Warn("this node is no longer MASTER", "instance", instance, "why", why)
	}
}
