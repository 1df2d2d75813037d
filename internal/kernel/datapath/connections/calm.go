package connections

import (
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/lb/report"
)

// calmLook is how often the table is checked while it is calm: for changes that no packet reports.
const calmLook = 5 * time.Second

// calm is whether the table is empty enough, for its size, that it needs no check before the packet
// path signals.
type calm struct {
	mu   sync.Mutex
	over chan struct{} // closed when the calm ends; nil: it is not calm
}

func (c *calm) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		c.over = make(chan struct{})
	}
}

func (c *calm) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		close(c.over)
		c.over = nil
	}
}

// wake returns nil if the table must be checked, otherwise a channel that signals when it must.
func (c *calm) wake() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Calm returns a channel that signals when the table must be checked again: before that, its size
// and its half-open connections are uncritical. nil: check it periodically.
func (t *Table) Calm() <-chan struct{} { return t.calm.wake() }

// wakeAt returns the number of entries at which the packet path rings the bell; 0: there are too
// many to sleep, or too many arrive per second (more). It ignores what CPUs have not reported yet
// (slack). The bell rings when a quarter of the room before the next action is used: 160,000
// entries a second may start at any moment, and find room until the table has grown.
func wakeAt(p report.Pressure, room, more uint64, slack int64) int64 {
	least := min(int64(room), p.EntriesMax/4)
	if p.HalfOpenMax > 0 {
		least = min(least, p.HalfOpenMax/4) // each half-open connection has an entry
	}
	at := p.Entries + (least-p.Entries)/4 - slack
	if 2*p.Entries >= least || at <= p.Entries || 8*int64(more) > least-p.Entries {
		return 0
	}
	return at
}

// sleep makes the table calm if possible, and returns the channel that signals the end; nil: it is
// not calm.
func (t *Table) sleep(more uint64) <-chan struct{} {
	p, err := t.meter.Fullness()
	if err != nil || p.PortsShort {
		return nil
	}
	room, err := t.shared.Conntrack.Room()
	if err != nil {
		return nil
	}
	at := wakeAt(p, room, more, conntrack.MaxUncounted())
	if at == 0 {
		return nil
	}
	bell := t.shared.Bell.AwaitEntries(at)
	if bell != nil {
		t.calm.begin()
	}
	return bell
}
