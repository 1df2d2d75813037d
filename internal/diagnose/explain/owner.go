package explain

import (
	"cmp"
	"net/netip"
	"strings"

	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/lb"
)

// addOwner adds whether packets to the VIP reach this node, if roles, maintenance or BGP decide
// that. The explanation assumes that the packet has arrived.
func (i *inquiry) addOwner(r *dryrun.Result, s *lb.Service) {
	if r.Entry != nil && r.Entry.Reply {
		return
	}
	_, to := i.ends()
	i.addRole(s, to.Addr())
	i.addMaintenance()
	i.addAnnouncements(s, to.Addr())
}

// addRole adds which node answers for the VIP, if roles were assigned.
func (i *inquiry) addRole(s *lb.Service, vip netip.Addr) {
	a, instance := &i.answer, s.Instance()
	switch role := cmp.Or(i.Desired.Instances.OfThisNode(i.now)[instance].Role, lb.RoleUnknown); {
	case role == lb.RoleUnknown:
	case role.Owns():
		a.add("role", OK, "%s of instance %s: this node answers ARP and ND for %s", role, instance, vip)
	default:
		a.add("role", Warning, "%s of instance %s: this node does not answer ARP and ND for %s, so packets reach it by routes only", role, instance, vip)
	}
}

func (i *inquiry) addMaintenance() {
	one := i.Desired.Maintenance.OfThisNode(i.now)
	switch one.Stage() {
	case lb.Draining:
		i.answer.add("node", Warning, "the node drains: routers and other nodes are asked to take over")
	case lb.Drained:
		i.answer.add("node", Warning, "the node is drained until: loxicmd node resume")
	}
}

// addAnnouncements adds whether the VIP is announced by BGP, and to which neighbors.
func (i *inquiry) addAnnouncements(s *lb.Service, vip netip.Addr) {
	if !s.BGP {
		return
	}
	a := &i.answer
	if i.Announcements == nil {
		a.add("announced", Warning, "no: BGP is off, and the service has --bgp: start loxilb with --bgp")
		return
	}
	for _, one := range i.Announcements(s) {
		if !one.Prefix.Contains(vip) {
			continue
		}
		if !one.Announced {
			a.add("announced", Warning, "%s is not: %s", one.Prefix, one.Why)
			continue
		}
		switch neighbors, refused := i.neighbors(vip); {
		case len(neighbors) > 0:
			a.add("announced", OK, "%s to %s, as far as policies accept it: %s", one.Prefix, strings.Join(neighbors, ", "), one.Why)
		case len(refused) > 0:
			a.add("announced", Warning, "%s to nobody: policies accept no route to %s", one.Prefix, strings.Join(refused, ", "))
		default:
			a.add("announced", Warning, "%s to nobody: no BGP session is established", one.Prefix)
		}
	}
}

// neighbors returns the neighbors whose sessions carry routes to an address. Policies refuse all
// routes to neighbors of the second list.
func (i *inquiry) neighbors(to netip.Addr) (list, refused []string) {
	for _, s := range i.Sessions() {
		at, err := netip.ParseAddr(s.Neighbor)
		switch carries := err != nil || at.Is4() == to.Is4(); { // an unnumbered one carries both versions
		case !s.Up() || !carries:
		case s.Sent == 0:
			refused = append(refused, s.Neighbor)
		default:
			list = append(list, s.Neighbor)
		}
	}
	return list, refused
}
