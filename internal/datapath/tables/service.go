package tables

import (
	"errors"
	"fmt"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/tables/alloc"
)

// Change is a service as it shall be. Table nil: it shall not be.
type Change struct {
	Key   bpf.TcServiceKey
	Table *bpf.ServiceTable
}

// Apply makes the tables what the changes say, one after the other and each atomically: a packet sees a service
// as it was or as it shall be. It returns an error for each change that failed, nil for the others: what failed is as it
// was, and may be tried again by itself.
//
// Connections of endpoints that stay are left alone. TCP connections of endpoints that are removed from a service go on
// until they end by themselves, their UDP flows are ended, and so is all that belongs to a deleted service. Applying the
// same again changes nothing. Each change costs as much as its own service has endpoints, whatever else there is.
func (t *Tables) Apply(changes []Change) []error {
	failed := make([]error, len(changes))
	for i, c := range changes {
		failed[i] = t.applyOne(c)
	}
	return failed
}

// applyOne holds the lock for one service only: readers of counters need not wait for thousands.
func (t *Tables) applyOne(c Change) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Table == nil {
		return t.deleteService(c.Key)
	}
	return t.putService(c.Table)
}

// Services lists the keys of the services in the data path.
func (t *Tables) Services() []bpf.TcServiceKey {
	t.mu.RLock()
	defer t.mu.RUnlock()
	keys := make([]bpf.TcServiceKey, 0, len(t.services))
	for k := range t.services {
		keys = append(keys, k)
	}
	return keys
}

func (t *Tables) putService(want *bpf.ServiceTable) error {
	s, there := t.services[want.Key]
	if !there {
		if err := t.dropSecondary(want.Key); err != nil {
			return err
		}
		var err error
		if s, err = t.newService(want.Key); err != nil {
			return err
		}
	}
	order, fresh, err := t.putEndpoints(s, want)
	var slots alloc.Range
	sources := s.sources
	if err == nil {
		err = t.addSources(s, want.Sources)
	}
	if err == nil {
		slots, err = t.putRow(s, want, order)
	}
	if err != nil {
		return errors.Join(err, t.keepSources(s, sources), t.forsake(s, fresh, there))
	}
	t.slots.Put(s.slots)
	s.slots, s.name = slots, want.Name
	if err := t.trimSNAT(s, len(want.SNAT)); err != nil {
		return err
	}
	if err := t.putWeights(order, want); err != nil {
		return err
	}
	if !there {
		t.services[want.Key] = s
		if err := t.countHost(want.Key, 1); err != nil {
			return err
		}
		if err := t.countService(want.Key, 1); err != nil {
			return err
		}
	}
	return errors.Join(t.putRange(s, want.PortMax), t.putSecondary(s, want.Secondary), t.keepSources(s, want.Sources), t.putEgress(s, want, order), t.replaceOrder(s, order, want.Of))
}

func (t *Tables) newService(key bpf.TcServiceKey) (*service, error) {
	id, used, err := t.serviceIDs.Get()
	if err != nil {
		return nil, err
	}
	if used {
		err := errors.Join(t.maps.ServiceStates.Put(id, bpf.TcServiceState{}), t.removed.put(id, counters{}))
		if err != nil {
			t.serviceIDs.Put(id, true)
			return nil, fmt.Errorf("clear counters: %w", err)
		}
	}
	s := &service{key: key, id: id}
	if used {
		s.persist = unknown
	}
	return s, nil
}

// putRow replaces the row that packets look up, once all that it leads to is there.
func (t *Tables) putRow(s *service, want *bpf.ServiceTable, order []*endpoint) (alloc.Range, error) {
	var idle uint32
	if want.Idle > 0 {
		idle = t.settings.Jiffies(want.Idle)
	}
	if err := t.maps.IdleTimeouts.Put(s.id, idle); err != nil {
		return alloc.Range{}, fmt.Errorf("write idle timeout: %w", err)
	}
	if err := t.putPersist(s, want.Persist); err != nil {
		return alloc.Range{}, err
	}
	places := make([]uint32, len(want.Slots))
	for i, slot := range want.Slots {
		places[i] = order[slot].id
	}
	if err := t.putSNAT(s, want.SNAT); err != nil {
		return alloc.Range{}, err
	}
	slots, err := t.slots.Write(places)
	if err != nil {
		return alloc.Range{}, err
	}
	if err := t.putMSS(s, want.MSS); err != nil {
		return alloc.Range{}, err
	}
	row := bpf.TcService{
		Id: s.id, SlotCount: slots.Count, SlotSegment: uint16(slots.Segment), SlotOffset: uint16(slots.Offset),
		Algorithm: want.Algorithm, Mode: want.Mode, SourceCount: uint32(len(want.SNAT)), PersistPrefix: uint32(want.PersistPrefix),
		PortMax: uint32(want.PortMax), Flags: want.Flags,
	}
	if len(want.Sources) > 0 {
		row.Flags |= serviceSources
	}
	if err := t.maps.Services.Put(want.Key, row); err != nil {
		t.slots.Put(slots)
		return alloc.Range{}, fmt.Errorf("write service: %w", err)
	}
	return slots, nil
}
