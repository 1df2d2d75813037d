package connections

import (
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/loader"
)

// clock follows the packet path's clock, which only a program can read: it asks rarely.
type clock struct {
	jiffy time.Duration

	mu    sync.Mutex
	asked time.Time
	ticks uint64 // at that time
}

// believed is for how long the clocks of kernel and process are the same: they drift.
const believed = time.Minute

// now is the clock in its ticks.
func (c *clock) now() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsZero() || time.Since(c.asked) > believed {
		ticks, err := loader.Ticks()
		if err != nil {
			return 0, err
		}
		c.asked, c.ticks = time.Now(), ticks
	}
	return c.ticks + uint64(time.Since(c.asked)/c.jiffy), nil
}

// span is how long some ticks are.
func (c *clock) span(ticks uint64) time.Duration { return time.Duration(ticks) * c.jiffy }
