package doctor

import "fmt"

// MobilePackets counts packets of mobile users that were not delivered.
type MobilePackets struct {
	Forged       uint64 // left in the tunnel: the source is not its user
	Unclassified uint64 // dropped: to a user, from an address without classifier, and without another route
	Failed       uint64 // dropped: no route to the base station, or no memory
}

// mobile reports packets of mobile users that were not delivered.
func mobile(m *Machine) (out []Finding, err error) {
	p := m.Facts.Mobile
	for _, c := range []struct {
		about             string
		packets           uint64
		what, why, remedy string
	}{
		{
			"unclassified", p.Unclassified, "packets to mobile users were dropped: their sources have no classifier, and there is no other route",
			"a tunnel gets only packets of classified addresses", "loxicmd create sessionulcl USER --ulclArgs=QFI:ADDRESS (tcpdump -ni llbgtp0 shows both addresses)",
		},
		{
			"failed", p.Failed, "packets of mobile users were dropped: no route to the base station, or no memory",
			"users do not get their answers", "ip route get ADDRESS, for each accessNetworkTunnel of loxicmd get session",
		},
		{
			"forged", p.Forged, "packets in GTP-U tunnels have another source than the tunnel's user",
			"they stay in the tunnel and do not reach services", "compare user and coreNetworkTunnel in loxicmd get session with the user plane function",
		},
	} {
		if c.packets > 0 {
			out = append(out, Finding{About: c.about, What: fmt.Sprintf("%d %s", c.packets, c.what), Sure: Possible, Why: c.why, Command: c.remedy})
		}
	}
	return out, m.Facts.MobileError
}
