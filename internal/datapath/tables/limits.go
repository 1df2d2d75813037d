package tables

import (
	"fmt"
	"time"
)

// putPersist says how long the service's clients are remembered; 0: they are forgotten.
func (t *Tables) putPersist(s *service, keep time.Duration) error {
	var ticks uint32
	if keep > 0 {
		ticks = t.settings.Jiffies(keep)
	}
	if ticks == s.persist {
		return nil
	}
	t.persisting = t.persisting || ticks > 0
	if err := t.maps.PersistTimeouts.Put(s.id, ticks); err != nil {
		return fmt.Errorf("write persist timeout: %w", err)
	}
	s.persist = ticks
	return nil
}

// AnyPersisting tells whether there may be a client to forget.
func (t *Tables) AnyPersisting() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.persisting
}

// putMSS limits a service's segments. The count that SYNs look at first goes up before and down after.
func (t *Tables) putMSS(s *service, mss uint16) error {
	if s.mss == mss {
		return nil
	}
	if s.mss == 0 {
		if err := t.countClamped(1); err != nil {
			return err
		}
	}
	if err := t.maps.MssLimits.Put(s.id, uint32(mss)); err != nil {
		return fmt.Errorf("write largest segment: %w", err)
	}
	s.mss = mss
	if mss == 0 {
		return t.countClamped(-1)
	}
	return nil
}

func (t *Tables) countClamped(by int) error {
	t.counts.clamped = uint32(int(t.counts.clamped) + by)
	if err := t.vars.MssServices.Set(t.counts.clamped); err != nil {
		return fmt.Errorf("write number of services that limit segments: %w", err)
	}
	return nil
}

// adoptMSS reads what is pinned.
func (t *Tables) adoptMSS(byID map[uint32]*service) error {
	for id, s := range byID {
		var limit uint32
		if err := t.maps.MssLimits.Lookup(id, &limit); err != nil {
			return fmt.Errorf("read largest segment: %w", err)
		}
		if s.mss = uint16(limit); limit > 0 {
			t.counts.clamped++
		}
	}
	return t.countClamped(0)
}
