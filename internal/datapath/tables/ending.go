package tables

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/tables/alloc"
)

// An endpoint that leaves its service keeps its row, and so its address and its counters, until its last connection
// is gone; and a deleted service keeps its id as long as it has such endpoints. The sweep ends connections, and has
// the rows freed.

// endEndpoints lets rows go once their connections have: those that flags name are ended by the next sweep, the
// others end in their own time.
func (t *Tables) endEndpoints(list []*endpoint, flags uint16) error {
	now := t.now()
	for _, e := range list {
		s := e.service
		if s.ending == nil {
			s.ending = map[netip.AddrPort]*endpoint{}
		}
		e.ended = now
		e.takes = 0
		s.ending[e.at] = e
		t.ending[e.id] = e
	}
	return t.writeEndpoints(list, flags)
}

func (t *Tables) deleteService(key bpf.TcServiceKey) error {
	s, ok := t.services[key]
	if !ok {
		return nil
	}
	if err := t.putSecondary(s, nil); err != nil {
		return err
	}
	if err := t.maps.Services.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete service: %w", err)
	}
	delete(t.services, key)
	s.deleted = true
	errs := []error{t.countService(key, -1), t.putRange(s, 0), t.keepSources(s, nil), t.countHost(key, -1), t.putEgress(s, nil, nil), t.trimSNAT(s, 0)}
	for _, e := range s.ending {
		s.order = append(s.order, e)
	}
	errs = append(errs, t.endEndpoints(s.order, endpointEndTCP|endpointEndUDP))
	t.slots.Put(s.slots)
	s.slots, s.order = alloc.Range{}, nil
	errs = append(errs, t.putPersist(s, 0), t.putMSS(s, 0))
	t.releaseService(s)
	return errors.Join(errs...)
}

// forsake takes back what a service that failed was given: the rows of fresh endpoints, and those of the service
// itself if it was not there before.
func (t *Tables) forsake(s *service, fresh []*endpoint, there bool) error {
	flags := endpointEndUDP
	if !there {
		s.deleted = true
		flags |= endpointEndTCP
	}
	err := t.endEndpoints(fresh, flags)
	t.releaseService(s)
	return err
}

// releaseService gives a deleted service's id back when none of its endpoints needs it any more.
func (t *Tables) releaseService(s *service) {
	if s.deleted && len(s.ending) == 0 {
		t.serviceIDs.Put(s.id, true)
	}
}
