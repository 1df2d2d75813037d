package compile

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

// Attributes of routes by role are those of the existing loxilb, so nodes of both can back up each
// other.
const (
	masterPref, masterMED = 5000, 10
	backupPref, backupMED = 100, 20
	// drainMED is added while the node drains: routers that ignore the community leave it too.
	drainMED = 100
	// drainPref is for iBGP neighbors, which do not translate the community (RFC 8326, section
	// 4.2). 0 would mean that the attribute is not set.
	drainPref = 1
	// defaultPref is the local preference of routes without one.
	defaultPref = 100
)

// A Claim is a service's request to announce a prefix, with the state that decides about it.
type Claim struct {
	lb.Announcement
	Instance string
	Role     lb.Role // of this node for the instance
	Applied  bool    // the data path has the service
	Serving  bool    // an endpoint that is not known to be down gets new connections
	Unprobed bool    // no endpoint gets new connections, and some were not probed yet
}

// A Decision is the decision whether a prefix is announced.
type Decision struct {
	Announced bool
	Why       string
	bgp.Attributes
}

// Decide merges the claims of services on a prefix. The prefix is announced if one of the claims
// allows it, with the best value of each attribute and all communities of the claims that allow it.
func Decide(claims []Claim, stage lb.Stage) Decision {
	var d Decision
	if stage == lb.Drained {
		d.Why = "the node is drained"
		return d
	}
	for i := range claims {
		c := &claims[i]
		why, allowed := c.allows()
		switch {
		case !allowed && !d.Announced:
			d.Why = cmp.Or(d.Why, why)
		case allowed && !d.Announced:
			d = Decision{Announced: true, Why: why, Attributes: c.attributes()}
		case allowed:
			d.Why = moreInformative(d.Why, why)
			d.Attributes = merged(d.Attributes, c.attributes())
		}
	}
	if d.Announced && stage == lb.Draining {
		d.Why, d.Attributes = "the node drains: routers are asked to prefer others", draining(d.Attributes)
	}
	return d
}

// Reasons to announce a prefix, and not to.
const (
	whyServing = "an endpoint takes connections"
	whyAlways  = "always, though no endpoint takes connections"
)

// moreInformative returns the more informative of two reasons to announce a prefix.
func moreInformative(a, b string) string {
	if b == whyServing {
		return b
	}
	return a
}

// allows reports whether the claim allows announcing the prefix, and why.
func (c *Claim) allows() (why string, allowed bool) {
	switch {
	case c.Role == lb.RoleFault || c.Role == lb.RoleStop:
		return "the role of this node for " + c.Instance + " is " + string(c.Role), false
	case !c.Applied:
		return "the service is not in the data path", false
	case c.Serving:
		return whyServing, true
	case c.Announce == lb.AnnounceAlways:
		return whyAlways, true
	case c.Unprobed:
		return "the endpoints were not probed yet", false
	}
	return "no endpoint takes connections", false
}

// Refuses reports whether the service would refuse clients that arrive by another claim's route.
func (c *Claim) Refuses() bool {
	return c.Applied && !c.Serving && c.Announce != lb.AnnounceAlways
}

// attributes returns the attributes of one service's route. The service's values apply to a MASTER;
// a BACKUP stays less preferred.
func (c *Claim) attributes() bgp.Attributes {
	a := bgp.Attributes{MED: c.MED, LocalPref: c.LocalPref, Prepend: c.Prepend, Communities: sortedUnique(c.Communities)}
	switch c.Role {
	case lb.RoleMaster:
		a.MED, a.LocalPref = cmp.Or(a.MED, masterMED), cmp.Or(a.LocalPref, masterPref)
	case lb.RoleBackup:
		a.MED = addSaturating(cmp.Or(a.MED, masterMED), backupMED-masterMED)
		a.LocalPref = max(1, min(cmp.Or(a.LocalPref, masterPref)-1, backupPref))
	}
	return a
}

// merged returns the best of each attribute, and all communities.
func merged(a, b bgp.Attributes) bgp.Attributes {
	pref := uint32(0)
	if a.LocalPref != 0 || b.LocalPref != 0 {
		pref = max(cmp.Or(a.LocalPref, defaultPref), cmp.Or(b.LocalPref, defaultPref))
	}
	return bgp.Attributes{
		MED: min(a.MED, b.MED), LocalPref: pref, Prepend: min(a.Prepend, b.Prepend),
		Communities: sortedUnique(slices.Concat(a.Communities, b.Communities)),
	}
}

// draining returns the attributes while the node drains.
func draining(a bgp.Attributes) bgp.Attributes {
	a.MED, a.LocalPref = addSaturating(a.MED, drainMED), drainPref
	a.Communities = sortedUnique(append(slices.Clone(a.Communities), bgp.GracefulShutdown))
	return a
}

// addSaturating returns a+b, or the largest number if that overflows.
func addSaturating(a, b uint32) uint32 { return a + min(b, math.MaxUint32-a) }

// sortedUnique returns the communities in ascending order, without duplicates.
func sortedUnique(list []bgp.Community) []bgp.Community {
	if len(list) == 0 {
		return nil
	}
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

// Route returns the route of an announced prefix.
func (d *Decision) Route(p netip.Prefix) bgp.Route {
	return bgp.Route{Prefix: p, Attributes: d.Attributes}
}
