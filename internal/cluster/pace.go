package cluster

import (
	"encoding/binary"
	"sync"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/lb/report"
)

const (
	// paceTime is how long later copies of a connection wait to be merged. A short connection has
	// three events: the first copy is sent at once, and the others are merged into one record.
	paceTime = 100 * time.Millisecond
	// maxPace bounds the connections of a period that are remembered; copies of others are sent at
	// once.
	maxPace = 1 << 15
)

// pace delays a copy of a connection if an earlier copy was sent within paceTime. The first copy is
// enough for another node to continue the connection: later copies only add that the client exists,
// and that the connection has ended. Copies that are passed on together are merged.
type pace struct {
	yield func([]report.ConnectionCopy)

	mu                sync.Mutex
	current, previous map[connectionID]latest // connections of this period, and of the one before
	batch             uint32                  // counts calls of hold
	held, spare       []report.ConnectionCopy
	since             []time.Time // when the ages of held were right
	timer             *time.Timer // ends the period; nil: nothing was sent
}

// connectionID identifies a connection, with the generation of its client's port. Maps hash a piece
// of memory several times as fast as addresses.
type connectionID [2*(16+2) + 2]byte

// latest is where the latest copy of a connection is: the next one is merged into it.
type latest struct {
	batch uint32 // in which it was passed on
	due   int32  // its index there
	held  int32  // its index in held, from 1; 0: it was passed on
}

func connectionIDOf(c *report.ConnectionCopy) (l connectionID) {
	const port, vip, vipPort = 16, 18, 34
	client, service := c.Client.Addr().As16(), c.VIP.Addr().As16()
	copy(l[:port], client[:])
	binary.BigEndian.PutUint16(l[port:], c.Client.Port())
	copy(l[vip:vipPort], service[:])
	binary.BigEndian.PutUint16(l[vipPort:], c.VIP.Port())
	l[len(l)-2], l[len(l)-1] = byte(c.Protocol), c.Generation
	return l
}

// add passes on copies that are due, and holds the others. It overwrites list.
func (p *pace) add(list []report.ConnectionCopy) {
	if due := p.hold(list); len(due) > 0 {
		p.yield(due)
	}
}

// hold returns the copies that are due, in place.
func (p *pace) hold(list []report.ConnectionCopy) []report.ConnectionCopy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.current, p.previous = map[connectionID]latest{}, map[connectionID]latest{}
		p.timer = time.AfterFunc(paceTime, p.endPeriod)
	}
	p.batch++
	due, at := list[:0], time.Now()
	for i := range list {
		c := &list[i]
		key := connectionIDOf(c)
		before, isRecent := p.current[key]
		switch {
		case before.held > 0:
			h, since := &p.held[before.held-1], &p.since[before.held-1]
			h.Idle += at.Sub(*since)
			*h, *since = record.Merge(*h, *c), at
			continue
		case isRecent && before.batch == p.batch:
			due[before.due] = record.Merge(due[before.due], *c)
			continue
		case !isRecent && len(p.current) >= maxPace:
			due = append(due, *c)
			continue
		}
		if _, known := p.previous[key]; known || isRecent {
			p.held, p.since = append(p.held, *c), append(p.since, at)
			p.current[key] = latest{held: int32(len(p.held))}
			continue
		}
		p.current[key] = latest{batch: p.batch, due: int32(len(due))}
		due = append(due, *c)
	}
	return due
}

// endPeriod passes on what was held.
func (p *pace) endPeriod() {
	p.mu.Lock()
	at := time.Now()
	list := p.held
	for i := range list {
		list[i].Idle += at.Sub(p.since[i])
	}
	p.held, p.spare, p.since = p.spare[:0], nil, p.since[:0]
	if len(p.current) == 0 {
		p.timer, p.current, p.previous, p.held, p.since = nil, nil, nil, nil, nil // the next copy begins a period
	} else {
		p.current, p.previous = p.previous, p.current
		clear(p.current)
		p.timer.Reset(paceTime)
	}
	p.mu.Unlock()
	if len(list) == 0 {
		return
	}
	p.yield(list)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = list[:0]
}

// stop passes on what is held.
func (p *pace) stop() {
	p.mu.Lock()
	began := p.timer != nil
	p.mu.Unlock()
	if began {
		p.endPeriod()
	}
}
