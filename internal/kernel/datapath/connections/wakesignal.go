package connections

import (
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/lb/report"
)

// wakeCheck is the interval of checks while the signal is armed: for changes that no packet
// reports.
const wakeCheck = 5 * time.Second

// wakeSignal is armed while the table is so empty, for its size, that it needs no check before the
// packet path signals.
type wakeSignal struct {
	mu    sync.Mutex
	armed chan struct{} // closed by the signal; nil: not armed
}

func (c *wakeSignal) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed == nil {
		c.armed = make(chan struct{})
	}
}

func (c *wakeSignal) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed != nil {
		close(c.armed)
		c.armed = nil
	}
}

// channel returns a channel that signals when the table must be checked, or nil if it must be
// checked now.
func (c *wakeSignal) channel() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.armed
}

// WakeSignal returns a channel that signals when the table must be checked again; until then, its
// size and its half-open connections are uncritical. If it returns nil, the table must be checked
// periodically.
func (t *Table) WakeSignal() <-chan struct{} { return t.wakeSignal.channel() }

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

// sleep arms the wake signal if possible, and returns its channel; nil: it is not armed.
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
		t.wakeSignal.arm()
	}
	return bell
}
