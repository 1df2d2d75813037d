package doctor

import "fmt"

// BGPSession is a session with a BGP neighbor that is down, and why as far as that is known.
type BGPSession struct{ Neighbor, Why string }

// bgpSessions reports sessions that are down.
func bgpSessions(m *Machine) (out []Finding, err error) {
	for _, s := range m.Facts.BGPSessions {
		out = append(out, Finding{
			About: s.Neighbor, What: fmt.Sprintf("BGP neighbor %s: %s", s.Neighbor, s.Why), Sure: Certain,
			Why:     "the neighbor does not learn VIPs from this node",
			Command: "loxicmd describe bgpneighbor " + s.Neighbor + ", and compare addresses, AS numbers and passwords with the neighbor's",
		})
	}
	return out, nil
}
