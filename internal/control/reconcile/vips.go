package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// vipKind is the kind of the statuses of VIPs that could not be released. If one could not be
// acquired, its services fail.
const vipKind = "vip"

// leftoverRetry is the wait before releasing leftovers of an earlier object again: no request waits
// for it.
const leftoverRetry = time.Second

// vips tracks the addresses that were acquired from the owner. Only the loop's goroutine uses it.
type vips struct {
	Observers
	owner    Owned
	wake     func()
	leasedBy func(netip.Addr) []string // the elected instances by which this node owns an address
	owned    map[netip.Addr]bool       // false: the owner failed, and retries by itself until the address is released
	leftover map[netip.Addr]time.Time  // could not be released: when to retry
}

func newVIPs(owner Owned, leasedBy func(netip.Addr) []string, o Observers, wake func()) *vips {
	return &vips{Observers: o, owner: owner, leasedBy: leasedBy, wake: wake, owned: map[netip.Addr]bool{}, leftover: map[netip.Addr]time.Time{}}
}

// apply acquires or releases these addresses according to wanted, and returns the addresses that
// could not be acquired.
func (v *vips) apply(ctx context.Context, touched []netip.Addr, wanted func(netip.Addr) bool) map[netip.Addr]error {
	var add, remove []netip.Addr
	slices.SortFunc(touched, netip.Addr.Compare)
	for _, a := range slices.Compact(touched) {
		owned, requested := v.owned[a]
		_, leftover := v.leftover[a]
		switch wants := wanted(a); {
		case wants && (!owned || leftover):
			add = append(add, a)
		case wants:
			v.owner.Leases.set(a, v.leasedBy(a))
		case requested:
			remove = append(remove, a)
		}
	}
	if len(remove) > 0 {
		v.removed(remove, v.owner.remove(ctx, remove))
	}
	if len(add) == 0 {
		return nil
	}
	failed := v.owner.add(ctx, v.leasedBy, add)
	for _, a := range add {
		v.clear(a)
		v.owned[a] = failed[a] == nil
	}
	return failed
}

// exactly also releases addresses of an earlier process.
func (v *vips) exactly(ctx context.Context, wanted []netip.Addr) {
	keep := make(map[netip.Addr]bool, len(wanted))
	for _, a := range wanted {
		v.owner.Leases.set(a, v.leasedBy(a))
	}
	failed := v.owner.Set(ctx, wanted)
	v.owner.Leases.keep()
	for _, a := range wanted {
		keep[a] = true
		v.owned[a] = failed[a] == nil
	}
	var left []netip.Addr
	for a := range failed {
		if !keep[a] {
			left = append(left, a)
			v.owned[a] = true
		}
	}
	v.removed(left, failed)
}

// retry releases the addresses that are due.
func (v *vips) retry(ctx context.Context, wanted func(netip.Addr) bool) {
	var due []netip.Addr
	for a, at := range v.leftover {
		if !time.Now().Before(at) {
			due = append(due, a)
		}
	}
	if len(due) > 0 {
		v.apply(ctx, due, wanted)
	}
}

// removed records which addresses were released, and which must be retried.
func (v *vips) removed(list []netip.Addr, failed map[netip.Addr]error) {
	for _, a := range list {
		err := failed[a]
		if err == nil {
			v.clear(a)
			delete(v.owned, a)
			continue
		}
		due := time.Now().Add(leftoverRetry)
		v.leftover[a] = due
		time.AfterFunc(leftoverRetry, v.wake)
		if v.Statuses.Failed(status.ID{Kind: vipKind, Key: a.String()}, 1, fmt.Errorf("give up: %w", err), due) {
			v.Log.Error("VIP cannot be removed; trying again", "vip", a, "error", err)
		}
	}
}

func (v *vips) clear(a netip.Addr) {
	if _, ok := v.leftover[a]; ok {
		delete(v.leftover, a)
		v.Statuses.Forget(status.ID{Kind: vipKind, Key: a.String()})
	}
}

// roles are this node's roles for the instances of services. A node that is not the master of an
// instance owns none of its VIPs: it neither answers for them nor announces them. Its data path
// stays unchanged, so connections which reach it continue. Only the loop's goroutine uses it.
type roles struct {
	instances map[string]lb.Instance
	vips      map[netip.Addr][]string // of clusters, that this node owns, and by which instances
	leased    leased
}

// set makes these the roles.
func (r *roles) set(instances map[string]lb.Instance) {
	r.instances, r.vips = instances, map[netip.Addr][]string{}
	for key, one := range instances {
		if one.VIP.IsValid() && one.Role.Owns() {
			r.vips[one.VIP] = append(r.vips[one.VIP], key)
		}
	}
}

func (r *roles) owns(instance string) bool { return r.instances[instance].Role.Owns() }

// sourced sets the cluster's address as a service's source, if its instance has one.
func (r *roles) sourced(s lb.Service) lb.Service {
	one, ok := r.instances[s.Instance()]
	if !ok {
		return s
	}
	if a := one.Source(&s); a.IsValid() {
		s.SNAT = []netip.Addr{a}
	}
	return s
}

// owned reports whether this node answers for an address: it belongs to a service or the cluster,
// and this node owns its instance.
func (s *Services) owned(a netip.Addr) bool {
	return len(s.roles.vips[a]) > 0 || s.index.owned(a, s.roles.owns)
}

// leasedBy returns the elected instances by which this node owns an address; none if it owns it
// without a lease.
func (s *Services) leasedBy(a netip.Addr) []string {
	if len(s.roles.leased) == 0 {
		return nil
	}
	owning := slices.Clone(s.roles.vips[a])
	for _, u := range s.index.vips[a] {
		if s.roles.owns(u.instance) {
			owning = append(owning, u.instance)
		}
	}
	return s.roles.leased.of(unique(owning))
}

// allOwned returns the addresses that this node answers for.
func (s *Services) allOwned() (list []netip.Addr) {
	for _, a := range s.index.allVIPs() {
		if s.index.owned(a, s.roles.owns) {
			list = append(list, a)
		}
	}
	return slices.AppendSeq(list, maps.Keys(s.roles.vips))
}

// feedRoles acquires and releases VIPs by the roles of a snapshot.
func (s *Services) feedRoles(ctx context.Context, snapshot *store.Snapshot) {
	before, now := s.roles.instances, s.Desired.Instances.OfThisNode(snapshot)
	leased := leasedBy(s.Desired, snapshot)
	if maps.Equal(before, now) && maps.Equal(s.roles.leased, leased) {
		return
	}
	s.roles.set(now)
	s.roles.leased = leased
	touched := s.index.allVIPs()
	for _, all := range []map[string]lb.Instance{before, now} {
		for _, one := range all {
			if one.VIP.IsValid() {
				touched = append(touched, one.VIP)
			}
		}
	}
	for key, one := range now {
		if was := before[key].Role; was != one.Role {
			s.Log.Info("role of this node", "instance", key, "role", one.Role, "was", cmp.Or(was, lb.RoleUnknown))
			s.Role(one)
		}
	}
	for key, one := range before {
		if _, there := now[key]; !there && one.Role != lb.RoleUnknown {
			one.Role = lb.RoleUnknown
			s.Role(one)
		}
	}
	failed := s.vips.apply(ctx, touched, s.owned)
	for key, i := range s.index.services {
		was, is := before[i.service.Instance()], now[i.service.Instance()]
		if was.Source(i.service) != is.Source(i.service) {
			s.MarkFirst(key)
			s.dependents.await(key)
			continue
		}
		for _, a := range i.service.OwnAddresses() {
			if failed[a] != nil { // the owner logs it, and retries
				s.Mark(key)
			}
		}
	}
}
