package tables

import (
	"fmt"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/rows"
	"loxilb/internal/lb"
)

// Refusal is how many packets a service has refused for a reason of bpf/abi.h, since it was made.
type Refusal struct {
	Service string // its key
	Name    string // as users call it; may be empty
	Reason  string
	Packets uint64
}

// EachRefusal calls yield with what each service has refused. It reads all services in a few system calls.
func (t *Tables) EachRefusal(yield func(Refusal)) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	byID := make(map[uint32]*service, len(t.services))
	for _, s := range t.services {
		byID[s.id] = s
	}
	err := rows.EachBatch(t.maps.ServiceStates, int(t.serviceIDs.Top()), func(ids []uint32, states []bpf.TcServiceState) {
		for i := range states {
			if s := byID[ids[i]]; s != nil {
				s.refusals(&states[i], yield)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read service counters: %w", err)
	}
	return nil
}

func (s *service) refusals(state *bpf.TcServiceState, yield func(Refusal)) {
	counts := lb.Refusals(state.Refused)
	counts.Each(func(reason lb.RefusalReason, packets uint64) {
		yield(Refusal{s.key.String(), s.name, reason.String(), packets})
	})
}
