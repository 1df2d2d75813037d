package doctor

import (
	"fmt"
	"slices"
)

// mtu looks whether what comes in at its largest gets to the endpoints, with what a tunnel adds.
func mtu(m *Machine) (out []Finding, err error) {
	links, err := m.Network.Links()
	if err != nil {
		return nil, err
	}
	by, largest := map[string]Link{}, Link{}
	for _, l := range links {
		by[l.Name] = l
		if slices.Contains(m.Facts.Interfaces, l.Name) && !l.Loopback && l.MTU > largest.MTU {
			largest = l
		}
	}
	told := map[string]bool{}
	for _, e := range m.Facts.Endpoints {
		way, err := m.Network.Route(e.Addr)
		if err != nil {
			continue // of which next-hops tells
		}
		room := by[way.Link].MTU
		if way.MTU > 0 {
			room = min(room, way.MTU)
		}
		if room -= e.Overhead; by[way.Link].Loopback || room >= largest.MTU || e.mss() > 0 && e.mss()+60 <= room || told[way.Link] {
			continue
		}
		told[way.Link] = true
		out = append(out, Finding{
			About: way.Link, Sure: Likely,
			What:    fmt.Sprintf("%[2]s receives packets of up to %[1]d bytes, but only %[3]d bytes fit towards endpoint %[4]s through %[5]s", largest.MTU, largest.Name, room, e.Addr, way.Link),
			Why:     "larger packets are refused by ICMP; where ICMP is filtered, connections hang at the first large packet",
			Command: fmt.Sprintf("%s, or give %s an MTU of %d", smallerSegments(e.Direct, room), way.Link, largest.MTU+e.Overhead),
		})
	}
	return out, nil
}
