package outlier

import "net/netip"

// Queue is a queue of endpoints to check. Addresses take turns, so a host with many endpoints does
// not delay others. Addresses with a failed endpoint have priority, as their other endpoints
// probably fail too.
type Queue struct {
	waiting          map[netip.Addr][]Action
	priority, others []netip.Addr // addresses with and without priority; some may no longer have waiting endpoints
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

// Failed reports that an endpoint has failed, which gives its address priority.
func (q *Queue) Failed(at netip.AddrPort) {
	if len(q.waiting[at.Addr()]) > 0 {
		q.priority = append(q.priority, at.Addr())
	}
}

// Pop removes and returns the next endpoint.
func (q *Queue) Pop() (a Action, ok bool) {
	for len(q.priority) > 0 {
		if a, ok = q.dequeue(q.priority[0]); ok {
			return a, true
		}
		q.priority = q.priority[1:]
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
