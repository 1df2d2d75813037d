package datapath

import "fmt"

// putMSS limits a service's segments. The count that SYNs look at first goes up before and down after.
func (d *Datapath) putMSS(s *service, mss uint16) error {
	if s.mss == mss {
		return nil
	}
	if s.mss == 0 {
		if err := d.countClamped(1); err != nil {
			return err
		}
	}
	if err := d.obj.MssLimits.Put(s.id, uint32(mss)); err != nil {
		return fmt.Errorf("write largest segment: %w", err)
	}
	s.mss = mss
	if mss == 0 {
		return d.countClamped(-1)
	}
	return nil
}

func (d *Datapath) countClamped(by int) error {
	d.tables.clamped = uint32(int(d.tables.clamped) + by)
	if err := d.obj.MssServices.Set(d.tables.clamped); err != nil {
		return fmt.Errorf("write number of services that limit segments: %w", err)
	}
	return nil
}

// adoptMSS reads what is pinned.
func (d *Datapath) adoptMSS(byID map[uint32]*service) error {
	for id, s := range byID {
		var limit uint32
		if err := d.obj.MssLimits.Lookup(id, &limit); err != nil {
			return fmt.Errorf("read largest segment: %w", err)
		}
		if s.mss = uint16(limit); limit > 0 {
			d.tables.clamped++
		}
	}
	return d.countClamped(0)
}
