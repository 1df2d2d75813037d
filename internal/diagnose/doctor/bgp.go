package doctor

import "fmt"

// BGPSession is a failing session with a BGP neighbor, and the reason if it is known.
type BGPSession struct {
	Neighbor, Why string
	Up            bool // the session is up, but lacks its BFD session
}

// bgpSessions reports sessions that are down, or are not protected by BFD.
func bgpSessions(m *Machine) (out []Finding, err error) {
	list := m.Facts.BGPSessions
	for _, s := range list[:min(len(list), maxListed)] {
		f := Finding{
			About: s.Neighbor, What: fmt.Sprintf("BGP neighbor %s: %s", s.Neighbor, s.Why), Sure: Certain,
			Why:     "the neighbor does not learn VIPs from this node",
			Command: "loxicmd describe bgpneighbor " + s.Neighbor + ", and compare addresses, AS numbers and passwords with the neighbor's",
		}
		if s.Up {
			f.Why = "if this node falls silent, the neighbor sends packets to it until its hold time ends"
			f.Command = "loxicmd create bgpneighbor " + s.Neighbor + " AS without --bfd for graceful restart instead (docs/ha.md)"
		}
		out = append(out, f)
	}
	if n := len(list) - maxListed; n > 0 {
		out = append(out, Finding{
			About: "others", Sure: Certain, What: fmt.Sprintf("%d more BGP sessions are down or lack BFD", n), Why: "the same", Command: "loxicmd get bgpneighbor -o wide",
		})
	}
	return out, nil
}
