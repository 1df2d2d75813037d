package programs

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// counts are the counters of dropped, challenged and refused packets.
type counts struct {
	drops      map[uint32][]uint64
	challenges []bpf.TcChallengeCounts
	refused    map[uint32]report.Refusals // of services that have refused something, by ID
}

// servicesCounted is the maximum number of services of a test.
const servicesCounted = 256

// countIncrease is the increase of counts: drops by reason, sent challenges, and refusals by
// service.
type countIncrease struct {
	drops      map[uint32]uint64
	challenges uint64
	refused    map[uint32]uint64 // by service
}

func (c countIncrease) none() bool {
	return len(c.drops) == 0 && c.challenges == 0 && len(c.refused) == 0
}

// equal reports whether two increases are the same.
func (c countIncrease) equal(o countIncrease) bool {
	return maps.Equal(c.drops, o.drops) && c.challenges == o.challenges && maps.Equal(c.refused, o.refused)
}

// describe returns an increase as text, with the names of drop reasons.
func (r *Runner) describe(c countIncrease) string {
	drops := map[string]uint64{}
	for reason, n := range c.drops {
		drops[r.Collection.DropReasons()[reason]] = n
	}
	return fmt.Sprintf("drops %v, challenges %d, refusals by service %v", drops, c.challenges, c.refused)
}

func (r *Runner) counts() (c counts, err error) {
	c.drops = map[uint32][]uint64{}
	for reason := range r.Collection.DropReasons() {
		var each []uint64
		if err := r.Collection.Maps.Drops.Lookup(reason, &each); err != nil {
			return c, fmt.Errorf("read drops: %w", err)
		}
		c.drops[reason] = each
	}
	if err := r.Collection.Maps.Challenges.Lookup(uint32(0), &c.challenges); err != nil {
		return c, fmt.Errorf("read challenges: %w", err)
	}
	c.refused = map[uint32]report.Refusals{}
	err = rows.EachBatch(r.Collection.Maps.ServiceStates, servicesCounted, func(ids []uint32, list []bpf.TcServiceState) {
		for i := range list {
			if list[i].Refused != (report.Refusals{}) {
				c.refused[ids[i]] = list[i].Refused
			}
		}
	})
	return c, err
}

func (c counts) since(before counts) countIncrease {
	n := countIncrease{drops: map[uint32]uint64{}, refused: map[uint32]uint64{}}
	for reason, each := range c.drops {
		for i := range each {
			if more := each[i] - before.drops[reason][i]; more > 0 {
				n.drops[reason] += more
			}
		}
	}
	for i := range c.challenges {
		n.challenges += c.challenges[i].Sent - before.challenges[i].Sent
	}
	for id, all := range c.refused {
		was := before.refused[id]
		if more := all.Sum() - was.Sum(); more > 0 {
			n.refused[id] = more
		}
	}
	return n
}

// restoreCounts resets the counters to their former values.
func (r *Runner) restoreCounts(before, now counts) error {
	var errs []error
	for reason, each := range before.drops {
		if !slices.Equal(each, now.drops[reason]) {
			errs = append(errs, r.Collection.Maps.Drops.Put(reason, each))
		}
	}
	if !slices.Equal(before.challenges, now.challenges) {
		errs = append(errs, r.Collection.Maps.Challenges.Put(uint32(0), before.challenges))
	}
	for id, all := range now.refused {
		if all != before.refused[id] {
			errs = append(errs, r.restoreRefused(id, before.refused[id]))
		}
	}
	return errors.Join(errs...)
}

func (r *Runner) restoreRefused(id uint32, before report.Refusals) error {
	var row bpf.TcServiceState
	if err := r.Collection.Maps.ServiceStates.Lookup(id, &row); err != nil {
		return fmt.Errorf("read the state of a service: %w", err)
	}
	row.Refused = before
	return r.Collection.Maps.ServiceStates.Put(id, row)
}
