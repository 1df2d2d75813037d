package outlier

import "net/netip"

// Queue is a queue of endpoints to check. Addresses alternate, so a machine with many
// endpoints does not delay others. An address with a failed endpoint comes first, as its other
// endpoints probably fail, too.
type Queue struct {
	waiting       map[netip.Addr][]Action
	first, others []netip.Addr // addresses that have, or had, waiting endpoints
}

// Push adds an endpoint.
func (q *Queue) Push(a Action) {
	addr := a.At.Addr()
	if q.waiting == nil {
		q.waiting = map[netip.Addr][]Action{}
	}
	if len(q.waiting[addr]) == 0 {
		q.others = append(q.others, addr)
	}
	q.waiting[addr] = append(q.waiting[addr], a)
}

// Failed reports that an endpoint has failed.
func (q *Queue) Failed(at netip.AddrPort) {
	if len(q.waiting[at.Addr()]) > 0 {
		q.first = append(q.first, at.Addr())
	}
}

// Pop returns the next endpoint.
func (q *Queue) Pop() (a Action, ok bool) {
	for len(q.first) > 0 {
		if a, ok = q.dequeue(q.first[0]); ok {
			return a, true
		}
		q.first = q.first[1:]
	}
	for len(q.others) > 0 {
		addr := q.others[0]
		q.others = q.others[1:]
		if a, ok = q.dequeue(addr); ok {
			if len(q.waiting[addr]) > 0 {
				q.others = append(q.others, addr)
			}
			return a, true
		}
	}
	return a, false
}

func (q *Queue) dequeue(addr netip.Addr) (a Action, ok bool) {
	list := q.waiting[addr]
	switch len(list) {
	case 0:
		return a, false
	case 1:
		delete(q.waiting, addr)
	default:
		q.waiting[addr] = list[1:]
	}
	return list[0], true
}
