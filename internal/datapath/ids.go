package datapath

import (
	"errors"
	"time"
)

// ErrFull says that a map has no row left. It may pass: what was removed gives its rows back a moment after its last
// connection.
var ErrFull = errors.New("no row is left in the data path: those of services and endpoints that were removed are free a moment after their last connection")

// ids gives out indices of an array map, the lowest that were never used first. A freed one rests before it is
// used again, so that a packet in flight never finds another owner behind it.
type ids struct {
	limit uint32
	next  uint32 // all below were given out, or found taken
	top   uint32 // none from here on was ever in use
	freed []freedID
	taken map[uint32]bool // from next on: found at adoption
	now   func() time.Time
}

type freedID struct {
	id   uint32
	used bool // its rows hold counters
	at   time.Time
}

// restTime is far longer than a packet spends in the program.
const restTime = time.Second

func newIDs(limit uint32, now func() time.Time) ids {
	return ids{limit: limit, taken: map[uint32]bool{}, now: now}
}

// get returns an id; used tells whether its rows may hold an earlier owner's counters.
func (i *ids) get() (id uint32, used bool, err error) {
	if len(i.freed) > 0 && i.now().Sub(i.freed[0].at) >= restTime {
		f := i.freed[0]
		i.freed = i.freed[1:]
		return f.id, f.used, nil
	}
	for i.next < i.limit {
		id = i.next
		i.next++
		if !i.taken[id] {
			i.top = max(i.top, i.next)
			return id, false, nil
		}
		delete(i.taken, id)
	}
	return 0, false, ErrFull
}

// put takes an id back; used tells whether its rows may hold counters.
func (i *ids) put(id uint32, used bool) { i.freed = append(i.freed, freedID{id, used, i.now()}) }

// take marks an id as used by somebody found in the maps. Only before the first get.
func (i *ids) take(id uint32) {
	i.taken[id] = true
	i.top = max(i.top, id+1)
}

// takeFreed marks an id whose owner is gone and whose counters are still there. Only before the first get.
func (i *ids) takeFreed(id uint32) {
	i.take(id)
	i.freed = append(i.freed, freedID{id: id, used: true})
}
