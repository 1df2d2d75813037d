package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// maxListed is how many endpoints are listed one by one.
const maxListed = 8

// lookThere is what tells more about an endpoint.
const lookThere = "check on the endpoint: ss -ltnu; nft list ruleset; ip route get CLIENT; tcpdump, whether packets come in and answers leave"

// endpoints tells of those that are down what a ping tells apart.
func endpoints(m *Machine) ([]Finding, error) {
	down := slices.Clone(m.Facts.Down)
	slices.SortStableFunc(down, func(a, b Down) int { return a.At.Compare(b.At) })
	down = slices.CompactFunc(down, func(a, b Down) bool { return a.At == b.At }) // probed in two ways
	out, err := eachOf(down[:min(len(down), maxListed)], func(d Down) (*Finding, error) {
		at := d.At.String()
		if d.At.Port() == 0 {
			at = d.At.Addr().String()
		}
		why, err := m.whyNot(d.At.Addr(), d.Evidence)
		return &Finding{About: at, Sure: Certain, What: fmt.Sprintf("endpoint %s is down: %s", at, d.Evidence), Why: why, Command: lookThere}, err
	})
	if n := len(down) - maxListed; n > 0 {
		out = append(out, Finding{
			About: "others", Sure: Certain, What: fmt.Sprintf("%d more endpoints are down", n), Why: "they receive no new connections", Command: "loxicmd get endpoint",
		})
	}
	return out, err
}

// eachOf looks at many at a time, and returns what it finds in their order.
func eachOf[T any](list []T, look func(T) (*Finding, error)) (out []Finding, err error) {
	type result struct {
		f   *Finding
		err error
	}
	results, places := make([]result, len(list)), make([]int, len(list))
	for i := range places {
		places[i] = i
	}
	pingEach(places, func(i int) { results[i].f, results[i].err = look(list[i]) })
	for _, r := range results {
		if err = errors.Join(err, r.err); r.f != nil {
			out = append(out, *r.f)
		}
	}
	return out, err
}

// whyNot says what may be wrong with an endpoint of which that was seen: whether it answers a ping
// tells it apart.
func (m *Machine) whyNot(a netip.Addr, seen string) (string, error) {
	if strings.Contains(seen, syscall.ECONNREFUSED.Error()) {
		return "its machine refuses connections: nothing listens on that port, or a firewall rejects them", nil
	}
	answered, err := m.Network.Ping(a, smallPing, smallPing)
	switch {
	case err != nil:
		return "it receives no new connections", err
	case slices.Contains(answered, true):
		return "it answers ping, so its machine and the routes are up: a firewall drops that port, or its server hangs or fails", nil
	}
	text := "it does not answer ping either: its machine is off, its route back to this machine is wrong (check its gateway), or a firewall on the path drops everything"
	if m.isAwake(a) {
		text = "it answers ARP or neighbour discovery, but not ping: its machine is on, so a firewall there drops everything, or its address or netmask is wrong"
	}
	return text, nil
}

// isAwake reports whether an address on the same link has told its MAC address.
func (m *Machine) isAwake(a netip.Addr) bool {
	if way, err := m.Network.Route(a); err != nil || way.Via.IsValid() {
		return false
	}
	list, _ := m.Network.Neighbours()
	return slices.ContainsFunc(list, func(n Neighbour) bool { return n.Addr == a && n.Valid && !n.Failed })
}
