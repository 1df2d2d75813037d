package main

import (
	"net/netip"

	"loxilb/internal/control/store"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/kernel/datapath/routing"
	"loxilb/internal/lb"
)

// availability returns the roles, maintenance and announcements that the doctor checks.
func (p *daemon) availability() (a doctor.Availability) {
	now := p.state.Snapshot()
	if one := p.state.Maintenance.OfThisNode(now); one.Stage() != lb.InService {
		a.Stage, a.Since = string(one.Stage()), one.Since
	}
	announced, instances := 0, map[string]int{} // numbers of services
	elected := p.elected(now)
	owners := map[netip.Addr]map[string]bool{} // instances that own a VIP by a lease
	roles := p.state.Instances.OfThisNode(now)
	for s := range p.state.Services.EachShared(now) {
		instances[s.Instance()]++
		if elected[s.Instance()] || roles[s.Instance()].Lease > 0 {
			addOwner(owners, s)
		}
		if s.BGP {
			announced++
		}
	}
	if why := p.unannounced(now); why != "" {
		a.Unannounced, a.Why = announced, why
	}
	if ready, _ := p.ready(); ready && a.Stage == "" && p.routes != nil {
		for _, one := range p.routes.All() {
			if !one.Announced {
				a.Hidden = append(a.Hidden, doctor.Withdrawn{Prefix: one.Prefix, Why: one.Why})
			}
		}
	}
	a.Unelected = p.unelected(now, instances, elected)
	for vip, of := range owners {
		if len(of) > routing.MaxLeases {
			a.Unleased = append(a.Unleased, doctor.Unleased{VIP: vip, Instances: len(of), Most: routing.MaxLeases})
		}
	}
	return a
}

// addOwner adds the instance of a service to the owners of its VIPs.
func addOwner(owners map[netip.Addr]map[string]bool, s *lb.Service) {
	for _, vip := range append([]netip.Addr{s.VIP}, s.Secondary...) {
		if owners[vip] == nil {
			owners[vip] = map[string]bool{}
		}
		owners[vip][s.Instance()] = true
	}
}

// elected returns the instances that have a BFD session.
func (p *daemon) elected(now *store.Snapshot) map[string]bool {
	elected := map[string]bool{}
	for s := range p.state.BFD.All(now) {
		elected[lb.InstanceKey(s.Instance)] = true
	}
	return elected
}

// unannounced returns why no BGP neighbor can learn VIPs with this configuration, or "".
func (p *daemon) unannounced(now *store.Snapshot) string {
	switch {
	case p.sessions == nil:
		return "BGP is off"
	case p.state.Speakers.Len(now) == 0:
		return "this node has no BGP speaker"
	case p.state.BGPNeighbors.Len(now) == 0:
		return "there is no BGP neighbor"
	}
	return ""
}

// unelected returns the instances of services that have neither a BFD session nor a role. If no
// instance has a session, it returns none.
func (p *daemon) unelected(now *store.Snapshot, services map[string]int, elected map[string]bool) (list []doctor.Unelected) {
	roles := p.state.Instances.OfThisNode(now)
	for instance, n := range services {
		if role := roles[instance].Role; len(elected) > 0 && !elected[instance] && (role == "" || role == lb.RoleUnknown) {
			list = append(list, doctor.Unelected{Instance: instance, Services: n})
		}
	}
	return list
}
