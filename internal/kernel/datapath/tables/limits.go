package tables

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/rows"
)

// ticks converts a duration to the maps' form: 0 for none.
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

// putNumber writes a row of an array by service id; known is the process's copy.
func (t *Tables) putNumber(m *ebpf.Map, id uint32, known *uint32, want uint32, undo *undoLog) error {
	was := *known
	if was == want {
		return nil
	}
	undo.add(func() error {
		*known = was
		return m.Put(id, was)
	})
	*known = want
	return m.Put(id, want)
}

// Persists returns the table of clients, if it may have any. nil: there is none.
func (t *Tables) Persists() *ebpf.Map {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.persisting {
		return nil
	}
	return t.arrays.Persists.Table()
}

// putMSS limits a service's segments. The count that SYNs check first is incremented before, and
// decremented when the change is final (settleMSS).
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
