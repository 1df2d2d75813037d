package datapath

import (
	"fmt"
	"time"

	"loxilb/internal/datapath/bpf"
)

// putPersist says how long the service's clients are remembered; 0: they are forgotten.
func (d *Datapath) putPersist(s *service, keep time.Duration) error {
	var ticks uint32
	if keep > 0 {
		ticks = d.jiffies(keep)
	}
	if ticks == s.persist {
		return nil
	}
	d.tables.persisting = d.tables.persisting || ticks > 0
	if err := d.obj.PersistTimeouts.Put(s.id, ticks); err != nil {
		return fmt.Errorf("write persist timeout: %w", err)
	}
	s.persist = ticks
	return nil
}

// anyPersisting tells whether there may be a client to forget.
func (d *Datapath) anyPersisting() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.tables.persisting
}

// putWeights has endpoints take as many new connections as the table says. It follows the service's row, whose slots
// lead to no endpoint of weight 0 any more: what the rows add is the share of those that are chosen by their load,
// and that a client does not come back to one that takes none.
func (d *Datapath) putWeights(order []*endpoint, t *bpf.ServiceTable) error {
	for i, e := range order {
		was := e.takes
		if e.takes = t.Endpoints[i].Takes; e.takes == was {
			continue
		}
		if err := d.writeEndpoint(e, 0); err != nil {
			e.takes = was
			return err
		}
	}
	return nil
}
