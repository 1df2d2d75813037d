package tables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Endpoints on this machine answer through its own stack: their packets arrive at no interface.
// While there are any, including ending ones, a second program handles leaving packets.

// countLocal counts an endpoint that was added (by is 1) or removed (-1).
func (t *Tables) countLocal(e *endpoint, by int) {
	if t.isLocal(e) {
		t.setLocalCount(uint32(int(t.localCount) + by))
	}
}

func (t *Tables) isLocal(e *endpoint) bool {
	_, ok := t.local[e.addr]
	return ok
}

// recountLocal counts the endpoints again after this machine's addresses have changed.
func (t *Tables) recountLocal() {
	var n uint32
	if len(t.local) > 0 {
		for _, e := range t.endpoints {
			if e != nil && t.isLocal(e) {
				n++
			}
		}
	}
	t.setLocalCount(n)
}

func (t *Tables) setLocalCount(n uint32) {
	flips := (n > 0) != (t.localCount > 0)
	if t.localCount = n; !flips {
		return
	}
	select {
	case t.localChanged <- struct{}{}:
	default: // a check is pending
	}
}

// LocalEndpointsChanged returns a channel that signals that HasLocalEndpoints may have changed.
func (t *Tables) LocalEndpointsChanged() <-chan struct{} { return t.localChanged }

// HasLocalEndpoints reports whether endpoints are on this machine, so leaving packets must be
// handled: now, or with these changes.
func (t *Tables) HasLocalEndpoints(changes ...Change) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.localCount > 0 || len(t.local) == 0 {
		return t.localCount > 0
	}
	for _, c := range changes {
		if c.Table == nil {
			continue
		}
		for _, e := range c.Table.Endpoints {
			if _, ok := t.local[e.Addr]; ok {
				return true
			}
		}
	}
	return false
}

// SetLocalAnswers sets whether answers of endpoints on this machine are handled. The programs must
// be attached first.
func (t *Tables) SetLocalAnswers(on bool) error {
	var n uint32
	if on {
		n = 1
	}
	if err := t.vars.LocalEndpoints.Set(n); err != nil {
		return fmt.Errorf("write whether endpoints are on this machine: %w", err)
	}
	return nil
}

// adoptLocal reads the state of an earlier process.
func (t *Tables) adoptLocal() error {
	var err error
	if t.local, err = rows.Read[bpf.TcIpAddr, uint8](t.maps.LocalAddresses); err != nil {
		return fmt.Errorf("read local addresses: %w", err)
	}
	t.recountLocal()
	return nil
}

// SetLocalAddresses sets the addresses of services on every local address. A failed write is
// retried by the next call.
func (t *Tables) SetLocalAddresses(list []netip.Addr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	want := make(map[bpf.TcIpAddr]uint8, len(list))
	for _, a := range list {
		want[bpf.Addr(a)] = 1
	}
	_, err := rows.Sync(t.maps.LocalAddresses, t.local, want)
	t.recountLocal()
	if err != nil {
		return fmt.Errorf("write local addresses: %w", err)
	}
	return nil
}

// putSecondary gives a service's secondary VIPs the same row, and removes it from former ones. They
// share everything that the row refers to: endpoints, order, counters. Called after the service's
// own row is written.
func (t *Tables) putSecondary(s *service, vips []bpf.TcIpAddr, undo *undoLog) error {
	was := s.secondaryVIPs()
	if len(vips)+len(was) == 0 {
		return nil
	}
	undo.add(func() error { return t.putSecondary(s, was, &undoLog{}) })
	for _, vip := range was {
		if !slices.Contains(vips, vip) {
			if err := t.dropSecondary(s.keyAt(vip), &undoLog{}); err != nil {
				return err
			}
		}
	}
	for _, vip := range vips {
		if err := t.addSecondary(s, vip, undo); err != nil {
			return err
		}
	}
	return nil
}

// secondaryVIPs returns the service's secondary VIPs.
func (s *service) secondaryVIPs() []bpf.TcIpAddr {
	copies := s.extras().secondary
	vips := make([]bpf.TcIpAddr, len(copies))
	for i, o := range copies {
		vips[i] = o.key.Vip
	}
	return vips
}

// keyAt returns the service's key at another VIP.
func (s *service) keyAt(vip bpf.TcIpAddr) bpf.TcServiceKey {
	key := s.key
	key.Vip = vip
	return key
}

func (t *Tables) addSecondary(s *service, vip bpf.TcIpAddr, undo *undoLog) error {
	key := s.keyAt(vip)
	if t.secondary[key] != s {
		if err := t.dropSecondary(key, undo); err != nil {
			return err
		}
		if _, ok := t.services[key]; ok { // of a service that is deleted first, or later in this pass
			if err := t.deleteService(key); err != nil {
				return err
			}
		}
	}
	row := s.row
	row.Flags |= serviceSecondary
	if err := t.maps.Services.Put(key, row); err != nil {
		return fmt.Errorf("write service: %w", asErrFull(err))
	}
	extra := s.makeExtras()
	at := slices.IndexFunc(extra.secondary, func(o *service) bool { return o.key == key })
	if at < 0 {
		at = len(extra.secondary)
		t.secondary[key] = s
		extra.secondary = append(extra.secondary, &service{key: key, id: s.id})
		if err := t.countService(key, 1); err != nil {
			return err
		}
	}
	return t.putRange(extra.secondary[at], uint16(row.PortMax), undo)
}

// dropSecondary removes a secondary VIP from its service, if it has one.
func (t *Tables) dropSecondary(key bpf.TcServiceKey, undo *undoLog) error {
	s, ok := t.secondary[key]
	if !ok {
		return nil
	}
	undo.add(func() error { return t.addSecondary(s, key.Vip, &undoLog{}) })
	if err := t.deleteRow(key); err != nil {
		return err
	}
	delete(t.secondary, key)
	extra := s.makeExtras()
	at := slices.IndexFunc(extra.secondary, func(o *service) bool { return o.key == key })
	old := extra.secondary[at]
	extra.secondary = slices.Delete(extra.secondary, at, at+1)
	return errors.Join(t.countService(key, -1), t.putRange(old, 0, &undoLog{}))
}

// adoptSecondary adopts rows of secondary VIPs, and removes rows of deleted services.
func (t *Tables) adoptSecondary(found map[bpf.TcServiceKey]bpf.TcService, byID map[uint32]*service) error {
	for key, row := range found {
		s := byID[row.Id]
		if s == nil || s.key.Port != key.Port || s.key.Kind != key.Kind || s.key.Protocol != key.Protocol || s.key.Mark != key.Mark {
			if err := rows.Delete(t.maps.Services, key); err != nil {
				return fmt.Errorf("delete service: %w", err)
			}
			continue
		}
		t.secondary[key] = s
		extra := s.makeExtras()
		extra.secondary = append(extra.secondary, &service{key: key, id: s.id, portMax: uint16(row.PortMax)})
		t.count(key, 1)
	}
	return nil
}
