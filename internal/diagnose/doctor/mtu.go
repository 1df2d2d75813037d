package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// pathMTU checks whether packets that fill the first link reach the endpoints and return. No table
// of this machine shows a later link that silently drops large packets.
func pathMTU(m *Machine) (out []Finding, err error) {
	links, err := m.Network.Links()
	if err != nil {
		return nil, err
	}
	by, largest := map[string]Link{}, 0
	for _, l := range links {
		by[l.Name] = l
		if slices.Contains(m.Facts.Interfaces, l.Name) && !l.Loopback {
			largest = max(largest, l.MTU)
		}
	}
	var (
		mu     sync.Mutex
		narrow = map[narrowPath][]netip.Addr{}
	)
	pingEach(m.Facts.Endpoints, func(e Endpoint) {
		route, failed := m.Network.Route(e.Addr)
		link := by[route.Link]
		size := min(link.MTU, largest+e.Overhead)
		if e.mss() > 0 {
			size = min(size, e.mss()+60+e.Overhead)
		}
		if failed != nil || link.Loopback || size <= smallPing {
			return // reported by next-hops and mtu
		}
		fits, failed := m.fitting(e.Addr, size)
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			err = failed
		}
		if fits > 0 && fits < size {
			path := narrowPath{fits, size, fits - e.Overhead, e.Direct}
			narrow[path] = append(narrow[path], e.Addr)
		}
	})
	for path, addrs := range narrow {
		slices.SortFunc(addrs, netip.Addr.Compare)
		out = append(out, path.finding(addrs))
	}
	slices.SortFunc(out, func(a, b Finding) int { return cmp.Compare(a.About, b.About) })
	return out, err
}

// narrowPath is a path with a smaller MTU than its first link.
type narrowPath struct {
	fits, size int // sizes of an answered packet, and of an unanswered one
	inside     int // size of packets inside a tunnel that fit
	direct     bool
}

func (p narrowPath) finding(addrs []netip.Addr) Finding {
	text := make([]string, len(addrs))
	for i, a := range addrs {
		text[i] = a.String()
	}
	return Finding{
		About: text[0], Sure: Likely,
		What: fmt.Sprintf("endpoint %s answers pings of %d bytes, but not larger ones of up to %d", names(text), p.fits, p.size),
		Why:  "a link on the path has a smaller MTU and drops larger packets without an ICMP error: handshakes and small answers pass, large transfers hang",
		Command: fmt.Sprintf("%s, or give the links on the path an MTU of %d, or let their routers and firewalls pass ICMP",
			smallerSegments(p.direct, p.inside), p.size),
	}
}

// fitting returns the largest tested packet size that an endpoint answers; 0: it answers no pings,
// so its path is unknown. Unanswered sizes are tried twice more, since replies may be lost.
func (m *Machine) fitting(to netip.Addr, size int) (fits int, err error) {
	steps := []int{smallPing}
	for _, s := range []int{576, 1000, 1280, 1340, 1380, 1400, 1420, 1440, 1460, 1480, 1492, 1500, 4000, 8000} {
		if s < size {
			steps = append(steps, s)
		}
	}
	steps = append(steps, size)
	for _, sizes := range [][]int{{smallPing, size}, steps, steps} {
		answered, err := m.Network.Ping(to, sizes...)
		if err != nil {
			return 0, err
		}
		for i, ok := range answered {
			if ok {
				fits = max(fits, sizes[i])
			}
		}
		if fits == 0 || fits == size {
			break
		}
	}
	return fits, nil
}

// mtu checks whether the largest arriving packets reach the endpoints, with a tunnel's header if
// there is one.
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
	seen := map[string]bool{}
	for _, e := range m.Facts.Endpoints {
		route, err := m.Network.Route(e.Addr)
		if err != nil {
			continue // reported by next-hops
		}
		room := by[route.Link].MTU
		if route.MTU > 0 {
			room = min(room, route.MTU)
		}
		if room -= e.Overhead; by[route.Link].Loopback || room >= largest.MTU || e.mss() > 0 && e.mss()+60 <= room || seen[route.Link] {
			continue
		}
		seen[route.Link] = true
		out = append(out, Finding{
			About: route.Link, Sure: Likely,
			What:    fmt.Sprintf("%[2]s receives packets of up to %[1]d bytes, but only %[3]d bytes fit towards endpoint %[4]s through %[5]s", largest.MTU, largest.Name, room, e.Addr, route.Link),
			Why:     "larger packets are refused by ICMP; where ICMP is filtered, connections hang at the first large packet",
			Command: fmt.Sprintf("%s, or give %s an MTU of %d", smallerSegments(e.Direct, room), route.Link, largest.MTU+e.Overhead),
		})
	}
	return out, nil
}
