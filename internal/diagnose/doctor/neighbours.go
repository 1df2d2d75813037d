package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// nextHops returns the daemon's network problems, or without a daemon, neighbours that do not
// answer.
func nextHops(m *Machine) (out []Finding, err error) {
	for _, p := range m.Facts.Problems {
		out = append(out, Finding{
			About: p.About, What: p.What, Sure: Certain, Why: "service packets or their answers do not arrive", Command: p.Hint,
		})
	}
	if m.Facts.Daemon {
		return out, nil
	}
	list, err := m.Network.Neighbours()
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		if n.Failed {
			out = append(out, Finding{
				About: n.Addr.String(), What: n.Addr.String() + " does not answer requests for its MAC address", Sure: Possible,
				Why: "if it is an endpoint or the router to one, packets do not arrive", Command: "ip neigh show " + n.Addr.String(),
			})
		}
	}
	return out, nil
}

// neighbourTable checks whether the neighbour table, which all network namespaces share, is nearly
// full.
func neighbourTable(m *Machine) (out []Finding, err error) {
	for _, t := range []struct{ family, stat string }{{"ipv4", "arp_cache"}, {"ipv6", "ndisc_cache"}} {
		limit, ok := m.setting("net/" + t.family + "/neigh/default/gc_thresh3")
		entries, known := m.neighbourEntries(t.stat)
		if !ok || !known || limit <= 0 || entries*10 < limit*9 {
			continue
		}
		name := "net/" + t.family + "/neigh/default/gc_thresh3"
		f := Finding{
			About: t.family, What: fmt.Sprintf("the kernel has %d neighbours, and the limit is %d", entries, limit), Sure: Certain,
			Why: "other endpoints and clients are unreachable (neighbour table overflow), in all network namespaces",
		}
		if entries < limit {
			f.Sure = Likely
		}
		f.Command, f.Fix = sysctl(name, strconv.FormatInt(max(2*limit, 2*entries), 10))
		out = append(out, f)
	}
	return out, nil
}

// neighbourEntries returns the first word of the second line, in hexadecimal.
func (m *Machine) neighbourEntries(stat string) (int64, bool) {
	text, ok := m.read("proc/net/stat", stat)
	lines := strings.Split(text, "\n")
	if !ok || len(lines) < 2 {
		return 0, false
	}
	words := strings.Fields(lines[1])
	if len(words) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(words[0], 16, 64)
	return n, err == nil
}
