package testrun

import (
	"errors"
	"fmt"
	"slices"

	"loxilb/internal/datapath/bpf"
)

// counts are the counters of packets that are dropped or challenged, of each CPU.
type counts struct {
	drops      map[uint32][]uint64
	challenges []bpf.TcChallengeCounts
}

// counted is how much they went up: drops by reason, and challenges that were sent.
type counted struct {
	drops      map[uint32]uint64
	challenges uint64
}

func (c counted) none() bool { return len(c.drops) == 0 && c.challenges == 0 }

func (r *Runner) counts() (c counts, err error) {
	c.drops = map[uint32][]uint64{}
	for reason := range r.shared.DropReasons() {
		var each []uint64
		if err := r.shared.Maps.Drops.Lookup(reason, &each); err != nil {
			return c, fmt.Errorf("read drops: %w", err)
		}
		c.drops[reason] = each
	}
	if err := r.shared.Maps.Challenges.Lookup(uint32(0), &c.challenges); err != nil {
		return c, fmt.Errorf("read challenges: %w", err)
	}
	return c, nil
}

func (c counts) since(before counts) counted {
	n := counted{drops: map[uint32]uint64{}}
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
	return n
}

// restoreCounts makes the counters what they were.
func (r *Runner) restoreCounts(before, now counts) error {
	var errs []error
	for reason, each := range before.drops {
		if !slices.Equal(each, now.drops[reason]) {
			errs = append(errs, r.shared.Maps.Drops.Put(reason, each))
		}
	}
	if !slices.Equal(before.challenges, now.challenges) {
		errs = append(errs, r.shared.Maps.Challenges.Put(uint32(0), before.challenges))
	}
	return errors.Join(errs...)
}
