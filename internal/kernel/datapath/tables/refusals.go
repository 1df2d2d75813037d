package tables

import (
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Refusal is how many packets a service has refused for a reason of bpf/abi.h, since it was made.
type Refusal struct {
	Service string // its key
	Name    string // as users call it; may be empty
	Reason  string
	Packets uint64
}

// EachRefusal calls yield with the refusals of each service. It reads all services in a few system
// calls.
func (t *Tables) EachRefusal(yield func(Refusal)) error {
	return t.eachRefusing(func(s *service, state *bpf.TcServiceState) { s.refusals(state, yield) })
}

// EachRefused calls yield with the number of packets that each service has refused, for any reason,
// of services that have refused any.
func (t *Tables) EachRefused(yield func(key lb.Key, packets uint64)) error {
	return t.eachRefusing(func(s *service, state *bpf.TcServiceState) {
		counts := report.Refusals(state.Refused)
		yield(s.userKey(), counts.Sum())
	})
}

// eachRefusing calls yield for each service that has refused packets. There are usually few of
// them, so an index of all services is made only for the first.
func (t *Tables) eachRefusing(yield func(*service, *bpf.TcServiceState)) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var byID map[uint32]*service
	err := rows.EachBatch(t.maps.ServiceStates, int(t.serviceIDs.Top()), func(ids []uint32, states []bpf.TcServiceState) {
		for i := range states {
			if states[i].Refused == [report.RefusalReasons]uint64{} {
				continue
			}
			if byID == nil {
				byID = t.servicesByID()
			}
			if s := byID[ids[i]]; s != nil {
				yield(s, &states[i])
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read service counters: %w", err)
	}
	return nil
}

func (t *Tables) servicesByID() map[uint32]*service {
	byID := make(map[uint32]*service, len(t.services))
	for _, s := range t.services {
		byID[s.id] = s
	}
	return byID
}

func (s *service) refusals(state *bpf.TcServiceState, yield func(Refusal)) {
	counts := report.Refusals(state.Refused)
	counts.Each(func(reason report.RefusalReason, packets uint64) {
		yield(Refusal{s.key.String(), s.name, reason.String(), packets})
	})
}
