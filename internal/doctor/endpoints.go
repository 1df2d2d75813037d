package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// mostDown is how many endpoints that are down are told one by one.
const mostDown = 8

// endpoints tells of those that are down what a ping tells apart.
func endpoints(m *Machine) ([]Finding, error) {
	down := slices.Clone(m.Facts.Down)
	slices.SortStableFunc(down, func(a, b Down) int { return a.At.Compare(b.At) })
	down = slices.CompactFunc(down, func(a, b Down) bool { return a.At == b.At }) // probed in two ways
	told := down[:min(len(down), mostDown)]
	answers := make([]string, len(told))
	places := make([]int, len(told))
	for i := range places {
		places[i] = i
	}
	var (
		mu     sync.Mutex
		failed error
	)
	pingEach(places, func(i int) {
		words, err := m.whatPingSays(told[i].At.Addr())
		mu.Lock()
		defer mu.Unlock()
		answers[i] = words
		if err != nil {
			failed = err
		}
	})
	var out []Finding
	for i, d := range told {
		at := d.At.String()
		if d.At.Port() == 0 {
			at = d.At.Addr().String()
		}
		out = append(out, Finding{
			About: at, Sure: Certain, What: fmt.Sprintf("endpoint %s is down: %s", at, d.Evidence), Why: answers[i],
			Command: "what these say there: ss -ltnu; nft list ruleset; ip route get CLIENT; tcpdump, whether packets come in and answers leave",
		})
	}
	if n := len(down) - len(told); n > 0 {
		out = append(out, Finding{
			About: "others", Sure: Certain, What: fmt.Sprintf("%d more endpoints are down", n), Why: "they get no new connections", Command: "loxicmd get endpoint",
		})
	}
	return out, failed
}

// whatPingSays says what it means that an address answers a ping, or does not.
func (m *Machine) whatPingSays(a netip.Addr) (string, error) {
	answered, err := m.Network.Ping(a, smallPing, smallPing)
	switch {
	case err != nil:
		return "it gets no new connections", err
	case slices.Contains(answered, true):
		return "it answers ping, so its machine and the ways there and back are well: its server is stopped or hangs, or a firewall drops that port", nil
	}
	text := "it does not answer ping either: its machine is off, its way back to this machine is wrong (the gateway there), or a firewall on the way drops all"
	if m.isAwake(a) {
		text = "it does not answer ping either, but ARP or neighbour discovery: its machine is on, so a firewall there drops all, or its address or netmask is wrong"
	}
	return text, nil
}

// isAwake tells whether an address on the same link has told its MAC address.
func (m *Machine) isAwake(a netip.Addr) bool {
	if way, err := m.Network.Route(a); err != nil || way.Via.IsValid() {
		return false
	}
	list, _ := m.Network.Neighbours()
	return slices.ContainsFunc(list, func(n Neighbour) bool { return n.Addr == a && n.Valid && !n.Failed })
}
