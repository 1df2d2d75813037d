package reconcile

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// roles are this node's roles for the instances of services. A node that is not the master of an
// instance owns none of its VIPs: it neither answers for them nor announces them. Its data path
// stays unchanged, so connections which reach it continue. Only the loop's goroutine uses it.
type roles struct {
	instances map[string]lb.Instance
	vips      map[netip.Addr][]string // VIPs of instances that this node owns, and their instances
	leased    leased
}

// set sets the roles.
func (r *roles) set(instances map[string]lb.Instance) {
	r.instances, r.vips = instances, map[netip.Addr][]string{}
	for key, one := range instances {
		if one.VIP.IsValid() && one.Role.Owns() {
			r.vips[one.VIP] = append(r.vips[one.VIP], key)
		}
	}
}

func (r *roles) owns(instance string) bool { return r.instances[instance].Role.Owns() }

// sourced sets the VIP of a service's instance as the service's source address, if it has one.
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

// owned reports whether this node answers for an address: it belongs to a service or an instance,
// and this node owns that instance.
func (s *Services) owned(a netip.Addr) bool {
	return len(s.roles.vips[a]) > 0 || s.index.owned(a, s.roles.owns)
}

// leaseInstances returns the instances whose leases an address depends on; none if this node owns
// it without a lease.
func (s *Services) leaseInstances(a netip.Addr) []string {
	if len(s.roles.leased) == 0 {
		return nil
	}
	owning := slices.Clone(s.roles.vips[a])
	for _, u := range s.index.vips[a] {
		if s.roles.owns(u.instance) {
			owning = append(owning, u.instance)
		}
	}
	return s.roles.leased.ifAll(unique(owning))
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
	leased := leasedInstances(s.Desired, snapshot)
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
		if _, exists := now[key]; !exists && one.Role != lb.RoleUnknown {
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
			if failed[a] != nil { // the owner logs the error, and retries
				s.Mark(key)
			}
		}
	}
}
