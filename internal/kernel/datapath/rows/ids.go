package rows

import (
	"errors"
	"sort"
	"time"
)

// ErrFull reports that a map has no free row. It may be temporary: a removed object releases its
// rows shortly after its last connection.
var ErrFull = errors.New("no free row in the data path: removed services and endpoints release theirs shortly after their last connection")

// IDs allocates indices of an array map: freed ones after their quarantine, otherwise the lowest
// unused one. The quarantine prevents a packet in flight from finding another owner's row.
type IDs struct {
	limit uint32
	next  uint32 // all below were allocated, or found in use
	top   uint32 // none from here on was ever in use
	freed []freedID
	taken []bool // found at adoption, by id
	after int    // number of taken ids at or above next
	now   Clock
}

type freedID struct {
	id   uint32
	used bool // its rows hold counters
	at   time.Time
}

// Quarantine is far longer than a packet spends in the program.
const Quarantine = time.Second

// Clock returns the current time.
type Clock func() time.Time

// NewIDs allocates ids below limit.
func NewIDs(limit uint32, now Clock) IDs {
	return IDs{limit: limit, now: now}
}

// Get returns an id; used reports whether its rows may hold an earlier owner's counters.
func (i *IDs) Get() (id uint32, used bool, err error) {
	if len(i.freed) > 0 && i.now().Sub(i.freed[0].at) >= Quarantine {
		f := i.freed[0]
		i.freed = i.freed[1:]
		return f.id, f.used, nil
	}
	for i.next < i.limit {
		id = i.next
		i.next++
		if !i.isTaken(id) {
			i.top = max(i.top, i.next)
			return id, false, nil
		}
		i.after--
	}
	return 0, false, ErrFull
}

// Put releases an id; used: its rows may hold counters.
func (i *IDs) Put(id uint32, used bool) { i.freed = append(i.freed, freedID{id, used, i.now()}) }

// Take marks an id whose owner was found in the maps. Call it only before the first Get.
func (i *IDs) Take(id uint32) {
	if i.isTaken(id) {
		return
	}
	for int(id) >= len(i.taken) {
		i.taken = append(i.taken, false)
	}
	i.taken[id] = true
	i.after++
	i.top = max(i.top, id+1)
}

func (i *IDs) isTaken(id uint32) bool { return int(id) < len(i.taken) && i.taken[id] }

// TakeFreed marks an id without an owner whose counters still exist. Call it only before the first
// Get.
func (i *IDs) TakeFreed(id uint32) {
	i.Take(id)
	i.freed = append(i.freed, freedID{id: id, used: true})
}

// Free returns the number of ids available to Get now, without those in quarantine.
func (i *IDs) Free() int {
	now := i.now()
	expired := sort.Search(len(i.freed), func(n int) bool { return now.Sub(i.freed[n].at) < Quarantine })
	return int(i.limit-i.next) - i.after + expired
}

// Top returns an upper bound of the indices ever used.
func (i *IDs) Top() uint32 { return i.top }

// Taken returns the number of ids with an owner.
func (i *IDs) Taken() int { return int(i.next) + i.after - len(i.freed) }

// SetClock sets the clock, for tests.
func (i *IDs) SetClock(now Clock) { i.now = now }
