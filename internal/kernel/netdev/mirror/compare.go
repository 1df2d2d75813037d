package mirror

import (
	"maps"
	"net/netip"
	"slices"

	"loxilb/internal/event"
)

// adoptLinks adopts the links of the fresh tables, and returns the differences.
func (t *tables) adoptLinks(fresh *tables) (events []event.Body) {
	for i, old := range t.links {
		if _, ok := fresh.links[i]; !ok {
			events = append(events, linkEvent(old, event.Removed)...)
		}
	}
	for i, l := range fresh.links {
		old, had := t.links[i]
		l.Generation = old.Generation
		if !had || l.cannotBe(old) {
			t.generations++
			l.Generation = t.generations
		}
		fresh.links[i] = l
		switch {
		case !had:
			events = append(events, linkEvent(l, event.Added)...)
		case !old.looksLike(l):
			events = append(events, linkEvent(l, event.Changed)...)
		}
	}
	t.links = fresh.links
	return events
}

// adoptNeighbours adopts the neighbours of the fresh tables. One that has failed, and is being
// requested again, still does not answer.
func (t *tables) adoptNeighbours(fresh *tables) {
	for key, n := range fresh.neighbours {
		n.silent = n.silent || n.isRequested() && t.neighbours[key].silent
		fresh.neighbours[key] = n
	}
	t.neighbours, t.gone = fresh.neighbours, 0
}

// compareAddresses returns the added and removed addresses of others.
func (t *tables) compareAddresses(fresh *tables) (events []event.Body) {
	foreign := func(places []address) bool {
		return slices.ContainsFunc(places, func(p address) bool { return !p.ours })
	}
	add := func(a netip.Addr, action event.Action) {
		events = append(events, event.Address{Addr: a, Action: action})
	}
	for _, a := range slices.SortedFunc(maps.Keys(t.addresses), netip.Addr.Compare) {
		if foreign(t.addresses[a]) && !foreign(fresh.addresses[a]) {
			add(a, event.Removed)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(fresh.addresses), netip.Addr.Compare) {
		if foreign(fresh.addresses[a]) && !foreign(t.addresses[a]) {
			add(a, event.Added)
		}
	}
	return events
}
