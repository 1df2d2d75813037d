package tables

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// ticks converts a duration to jiffies, the unit of the maps; 0 means no timeout.
func (t *Tables) ticks(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return t.settings.Jiffies(d)
}

// putTimeouts sets a service's idle timeout (0: the protocol's default), and how long its clients
// are remembered (0: not at all).
func (t *Tables) putTimeouts(s *service, idle, persist uint32, undo *undoLog) error {
	if persist > 0 {
		if err := t.arrays.Persists.Make(); err != nil {
			return err
		}
		t.persisting = true
	}
	if err := t.putNumber(t.maps.IdleTimeouts, s.id, &s.idle, idle, undo); err != nil {
		return fmt.Errorf("write idle timeout: %w", err)
	}
	if err := t.putNumber(t.maps.PersistTimeouts, s.id, &s.persist, persist, undo); err != nil {
		return fmt.Errorf("write persist timeout: %w", err)
	}
	return nil
}

// putNumber writes a row of an array by service id; known points to the process's copy.
func (t *Tables) putNumber(m *ebpf.Map, id uint32, known *uint32, want uint32, undo *undoLog) error {
	before := *known
	if before == want {
		return nil
	}
	undo.add(func() error {
		*known = before
		return m.Put(id, before)
	})
	*known = want
	return m.Put(id, want)
}

// Persists returns the table of remembered clients, or nil if no service remembers clients.
func (t *Tables) Persists() *ebpf.Map {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.persisting {
		return nil
	}
	return t.arrays.Persists.Table()
}

// putMSS limits a service's segments. SYNs first check the count of such services: it is
// incremented before the change, and decremented after the change is final (settleMSS).
func (t *Tables) putMSS(s *service, mss uint16, undo *undoLog) error {
	if mss > 0 && !s.clamped {
		s.clamped = true
		undo.add(func() error {
			s.clamped = false
			return t.countClamped(-1)
		})
		if err := t.countClamped(1); err != nil {
			return err
		}
	}
	if err := t.putNumber(t.maps.MssLimits, s.id, &s.mss, uint32(mss), undo); err != nil {
		return fmt.Errorf("write largest segment: %w", err)
	}
	return nil
}

func (t *Tables) settleMSS(s *service) error {
	if s.mss > 0 || !s.clamped {
		return nil
	}
	s.clamped = false
	return t.countClamped(-1)
}

func (t *Tables) countClamped(by int) error {
	t.counts.clamped = uint32(int(t.counts.clamped) + by)
	if err := t.vars.MssServices.Set(t.counts.clamped); err != nil {
		return fmt.Errorf("write number of services that limit segments: %w", err)
	}
	return nil
}

// adoptLimits reads the pinned limits.
func (t *Tables) adoptLimits(byID map[uint32]*service) error {
	read := func(m *ebpf.Map, set func(s *service, n uint32)) error {
		return rows.EachBatch(m, MaxServices, func(ids, numbers []uint32) {
			for i, id := range ids {
				if s := byID[id]; s != nil {
					set(s, numbers[i])
				}
			}
		})
	}
	err := errors.Join(
		read(t.maps.IdleTimeouts, func(s *service, n uint32) { s.idle = n }),
		read(t.maps.PersistTimeouts, func(s *service, n uint32) { s.persist = n }),
		read(t.maps.MssLimits, func(s *service, n uint32) {
			if s.mss = n; n > 0 && !s.deleted {
				s.clamped = true
				t.counts.clamped++
			}
		}),
	)
	if err != nil {
		return fmt.Errorf("read limits of services: %w", err)
	}
	return t.countClamped(0)
}

// putLimits writes the connection limits of a service that has or had limits. A new limit per
// client starts to count at zero.
func (t *Tables) putLimits(s *service, want bpf.Limits, undo *undoLog) error {
	if !want.Any() && s.row.Flags&serviceLimited == 0 {
		return nil
	}
	for _, a := range []interface{ Make() error }{t.arrays.LimitedClients, t.arrays.ServiceLimits} {
		if err := a.Make(); err != nil {
			return err
		}
	}
	m := t.arrays.ServiceLimits.Table()
	var was bpf.TcServiceLimits
	if err := m.Lookup(s.id, &was); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read limits of connections: %w", err)
	}
	row := bpf.TcServiceLimits{
		Rate: want.Rate, Connections: want.Connections, ClientRate: want.ClientRate, ClientConnections: want.ClientConnections,
		ClientPrefix: want.ClientPrefix, Generation: was.Generation,
	}
	if was.ClientConnections == 0 && row.ClientConnections != 0 || was.ClientPrefix != row.ClientPrefix {
		row.Generation++
	}
	undo.add(func() error { return m.Put(s.id, was) })
	if err := m.Put(s.id, row); err != nil {
		return fmt.Errorf("write limits of connections: %w", err)
	}
	return nil
}

// adoptConnectionLimits clears limits that an earlier process left when it was killed: those of
// removed services, and of services without limits.
func (t *Tables) adoptConnectionLimits(byID map[uint32]*service) error {
	m := t.arrays.ServiceLimits.Table()
	if m == nil {
		return nil
	}
	stale := map[uint32]bpf.TcServiceLimits{}
	err := rows.EachBatch(m, MaxServices, func(ids []uint32, all []bpf.TcServiceLimits) {
		for i, row := range all {
			none := bpf.TcServiceLimits{Generation: row.Generation}
			s := byID[ids[i]]
			if row == none || s != nil && !s.deleted && s.row.Flags&serviceLimited != 0 {
				continue
			}
			none.Generation++
			stale[ids[i]] = none
		}
	})
	for id, row := range stale {
		err = errors.Join(err, m.Put(id, row))
	}
	if err != nil {
		return fmt.Errorf("clear limits of connections: %w", err)
	}
	return nil
}

// attached has the policers and mirrors of services.
type attached struct {
	wanted map[bpf.TcServiceKey]bpf.TcAttachments // including missing services
	rows   map[uint32]bpf.TcAttachments           // the rows of the map
}

// AttachToServices sets the attachments of services; attachments of missing services take effect
// when the services appear. It reports whether a service gained its first attachment or lost its
// last one: then its connections must look up their next hops.
func (t *Tables) AttachToServices(want map[bpf.TcServiceKey]bpf.TcAttachments) (changed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attached.wanted = maps.Clone(want)
	byID := map[uint32]bpf.TcAttachments{}
	for key, a := range want {
		if s := t.services[key]; s != nil {
			byID[s.id] = a
		}
	}
	changed, err = rows.Sync(t.maps.AttachedServices, t.attached.rows, byID)
	if err != nil {
		err = fmt.Errorf("attach policers and mirrors to services: %w", asErrFull(err))
	}
	return changed, err
}

// putAttachments writes a service's attachments.
func (t *Tables) putAttachments(id uint32, want bpf.TcAttachments) error {
	if t.attached.rows[id] == want {
		return nil
	}
	if want == (bpf.TcAttachments{}) {
		if err := rows.Delete(t.maps.AttachedServices, id); err != nil {
			return fmt.Errorf("detach policers and mirrors from a service: %w", err)
		}
		delete(t.attached.rows, id)
		return nil
	}
	if err := t.maps.AttachedServices.Put(id, want); err != nil {
		return fmt.Errorf("attach policers and mirrors to a service: %w", asErrFull(err))
	}
	t.attached.rows[id] = want
	return nil
}

// adoptAttachments reads the attachments of an earlier process. They stay until AttachToServices.
func (t *Tables) adoptAttachments() error {
	var err error
	if t.attached.rows, err = rows.Read[uint32, bpf.TcAttachments](t.maps.AttachedServices); err != nil {
		return fmt.Errorf("read policers and mirrors of services: %w", err)
	}
	return nil
}
