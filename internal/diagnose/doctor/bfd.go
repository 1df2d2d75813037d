package doctor

import (
	"fmt"
	"time"
)

// BFDSession is a BFD session with another node that is down, or whose peer claims no role.
type BFDSession struct {
	Key, Why string
	NoClaims bool      // the session is up, but the peer claims no role
	Since    time.Time // when that state began
}

// bfdSessions reports sessions that do not protect this node.
func bfdSessions(m *Machine) (out []Finding, err error) {
	for _, s := range m.Facts.BFDSessions {
		f := Finding{
			About: s.Key, What: fmt.Sprintf("BFD session %s: %s", s.Key, s.Why), Sure: Certain,
			Why:     "no other node takes over the VIPs of this one",
			Command: "loxicmd get bfd -o wide on both nodes, and compare their addresses; let firewalls pass UDP port 3784",
		}
		if s.NoClaims {
			f.Why = "it neither gives nor takes roles, so two nodes might own the VIPs"
			f.Command = "run the same version of loxilb on both nodes, with a session in the same instance"
		}
		out = append(out, f)
	}
	return out, nil
}
