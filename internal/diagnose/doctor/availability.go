package doctor

import (
	"fmt"
	"net/netip"
	"time"
)

// maintenanceTime is how long a node may be out of service without a finding: most upgrades take
// less.
const maintenanceTime = time.Hour

// Availability has the facts that decide whether other nodes and routers send packets here.
type Availability struct {
	Stage       string // of maintenance; "": the node is in service
	Since       time.Time
	Unannounced int         // services with BGP that no neighbor can learn
	Why         string      // why no neighbor can learn them
	Hidden      []Withdrawn // VIPs that are not announced while the node is in service
	Unelected   []Unelected
	Unleased    []Unleased
}

// Withdrawn is a VIP that is not announced, and why.
type Withdrawn struct {
	Prefix netip.Prefix
	Why    string
}

// Unelected is an instance of services without an election, while other instances are elected.
type Unelected struct {
	Instance string
	Services int
}

// Unleased is a VIP without a lease, as it has more elected instances than the packet path checks.
type Unleased struct {
	VIP             netip.Addr
	Instances, Most int
}

// maintenance reports a node that has been out of service for too long.
func maintenance(m *Machine) (out []Finding, err error) {
	a := &m.Facts.Availability
	if a.Stage == "" || time.Since(a.Since) < maintenanceTime {
		return nil, nil
	}
	return []Finding{{
		About: a.Stage, What: fmt.Sprintf("the node is %s since %s", a.Stage, a.Since.Local().Format(time.DateTime)), Sure: Likely,
		Why: "nobody serves if the other node fails", Command: "loxicmd node resume",
	}}, nil
}

// announcements reports VIPs that routers do not learn from this node.
func announcements(m *Machine) (out []Finding, err error) {
	a := &m.Facts.Availability
	if a.Unannounced > 0 {
		out = append(out, Finding{
			About: "neighbors", What: fmt.Sprintf("services with --bgp: %d, and %s", a.Unannounced, a.Why), Sure: Certain,
			Why: "no router learns their VIPs", Command: "see docs/ha.md: loxilb --bgp, loxicmd set bgp, loxicmd create bgpneighbor",
		})
	}
	const most = 8
	for i, w := range a.Hidden {
		if i == most {
			out = append(out, Finding{
				About: "more", What: fmt.Sprintf("%d more VIPs are not announced", len(a.Hidden)-most), Sure: Certain,
				Why: "routers send their packets to other nodes, or nowhere", Command: "loxicmd get lb -o wide",
			})
			break
		}
		command := "loxicmd get lb -o wide" // no service has the address of an aggregate
		if w.Prefix.IsSingleIP() {
			command = "loxicmd describe lb " + w.Prefix.Addr().String()
		}
		out = append(out, Finding{
			About: w.Prefix.String(), What: fmt.Sprintf("%s is not announced: %s", w.Prefix, w.Why), Sure: Certain,
			Why: "routers send its packets to other nodes, or nowhere", Command: command,
		})
	}
	return out, nil
}

// roles reports instances without a BFD session while other instances have one, and VIPs in too
// many elected instances to have a lease.
func roles(m *Machine) (out []Finding, err error) {
	for _, one := range m.Facts.Availability.Unelected {
		out = append(out, Finding{
			About: one.Instance, What: fmt.Sprintf("instance %s of %d services has no BFD session and no role", one.Instance, one.Services), Sure: Likely,
			Why:     "each node counts as its MASTER, so two nodes may own the VIPs",
			Command: "loxicmd create bfd PEER --instance=" + one.Instance + ", or loxicmd set hastate ROLE --instance=" + one.Instance,
		})
	}
	for _, one := range m.Facts.Availability.Unleased {
		out = append(out, Finding{
			About: one.VIP.String(), Sure: Likely,
			What:    fmt.Sprintf("VIP %s is in %d elected instances, and has no lease: at most %d are checked", one.VIP, one.Instances, one.Most),
			Why:     "the kernel of a node whose daemon died answers for the VIP although its peer owns it",
			Command: "loxicmd create lb with the same instance (--name=NAME:INSTANCE) for all services of the VIP",
		})
	}
	return out, nil
}
