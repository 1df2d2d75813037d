package datapath

import (
	"errors"
	"time"
)

// errIDs says that a map has no row left.
var errIDs = errors.New("no id left")

// ids gives out indices of an array map, the lowest that were never used first. A freed one rests before it is
// used again, so that a packet in flight never finds another owner behind it.
type ids struct {
	limit uint32
	next  uint32 // all below were used at least once
	freed []freedID
	taken map[uint32]bool // above next, found at adoption
	now   func() time.Time
}

type freedID struct {
	id uint32
	at time.Time
}

// restTime is far longer than a packet spends in the program.
const restTime = time.Second

func newIDs(limit uint32) ids {
	return ids{limit: limit, taken: map[uint32]bool{}, now: time.Now}
}

// get returns an id; used tells whether its rows may hold an earlier owner's counters.
func (i *ids) get() (id uint32, used bool, err error) {
	if len(i.freed) > 0 && i.now().Sub(i.freed[0].at) >= restTime {
		id = i.freed[0].id
		i.freed = i.freed[1:]
		return id, true, nil
	}
	for i.next < i.limit {
		id = i.next
		i.next++
		if !i.taken[id] {
			return id, false, nil
		}
		delete(i.taken, id)
	}
	if len(i.freed) > 0 { // none has rested; better one of those than none
		id = i.freed[0].id
		i.freed = i.freed[1:]
		return id, true, nil
	}
	return 0, false, errIDs
}

func (i *ids) put(id uint32) { i.freed = append(i.freed, freedID{id, i.now()}) }

// take marks an id as used by somebody found in the maps. Only before the first get.
func (i *ids) take(id uint32) { i.taken[id] = true }
