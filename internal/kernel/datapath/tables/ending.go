package tables

import (
	"errors"
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
)

// An endpoint that leaves its service keeps its row, and so its address and its counters, until its
// last connection is gone; and a deleted service keeps its id as long as it has such endpoints.
// When TCP connections end that do not by themselves, ends.go says; all others end at once.

// endEndpoints lets rows go once their connections have.
func (t *Tables) endEndpoints(list []*endpoint, ends bpf.Ends) error {
	now := t.now().Sub(t.opened)
	if err := t.noteEnds(list, ends); err != nil {
		return err
	}
	for _, e := range list {
		s := e.service
		if s.ending == nil {
			s.ending = map[netip.AddrPort]*endpoint{}
		}
		e.ended = now
		e.takes = 0
		s.ending[e.at()] = e
		t.ending[e.id] = e
	}
	return t.writeEndpoints(list, endpointRemoved)
}

// deleteService first removes the rows by which packets find the service. From then on it is
// deleted: rows that cannot be removed are reported, and found by the next start.
func (t *Tables) deleteService(key bpf.TcServiceKey) error {
	s, ok := t.services[key]
	if !ok {
		return nil
	}
	var undo undoLog
	if err := t.putSecondary(s, nil, &undo); err != nil {
		return errors.Join(err, undo.run())
	}
	if err := t.deleteRow(key); err != nil {
		return errors.Join(err, undo.run())
	}
	delete(t.services, key)
	s.deleted = true
	var never undoLog
	errs := []error{
		t.countService(key, -1), t.putRange(s, 0, &never), t.keepSources(s, allowedSources, nil), t.keepSources(s, deniedSources, nil), t.countHost(key, -1), t.putEgress(s, nil, &never),
		t.trimSNAT(s, 0), t.putTimeouts(s, 0, 0, &never), t.putMSS(s, 0, &never), t.settleMSS(s),
		t.putLimits(s, bpf.Limits{}, &never), t.putAttachments(s.id, bpf.TcAttachments{}),
	}
	for _, e := range s.ending {
		s.order = append(s.order, e)
	}
	errs = append(errs, t.endEndpoints(s.order, t.endsNow()))
	t.slots.Put(s.slots())
	s.order = nil
	t.releaseService(s)
	return errors.Join(errs...)
}

// releaseService releases a deleted service's id when none of its endpoints needs it any more.
func (t *Tables) releaseService(s *service) {
	if s.deleted && len(s.ending) == 0 {
		t.serviceIDs.Put(s.id, true)
	}
}
