package cluster

import (
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	// paceTime is how long later copies of a connection wait for each other. A short connection has
	// three events: its first copy is sent at once, and the others then cost one more record.
	paceTime = 100 * time.Millisecond
	// paceMost bounds the connections of a period that are remembered; copies of others are sent at
	// once.
	paceMost = 1 << 15
)

// pace delays a copy of a connection if an earlier copy was sent a moment ago. The first copy is
// enough for another node to continue the connection: later copies only add that the client exists,
// and that the connection has ended.
type pace struct {
	yield func([]report.ConnectionCopy)

	mu           sync.Mutex
	now, earlier map[life]bool // connections sent in this period, and in the one before
	held         map[life]heldCopy
	timer        *time.Timer // ends the period; nil: nothing was sent
}

// life identifies a connection, with the generation of its client's port.
type life struct {
	client, vip netip.AddrPort
	protocol    lb.Protocol
	generation  uint8
}

type heldCopy struct {
	report.ConnectionCopy
	since time.Time
}

func lifeOf(c *report.ConnectionCopy) life { return life{c.Client, c.VIP, c.Protocol, c.Generation} }

// add passes on copies that are due, and holds the others. It uses list.
func (p *pace) add(list []report.ConnectionCopy) {
	if due := p.hold(record.Coalesce(list)); len(due) > 0 {
		p.yield(due)
	}
}

// hold returns the copies that are due, in place.
func (p *pace) hold(list []report.ConnectionCopy) []report.ConnectionCopy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.now, p.earlier, p.held = map[life]bool{}, map[life]bool{}, map[life]heldCopy{}
		p.timer = time.AfterFunc(paceTime, p.endPeriod)
	}
	due, at := list[:0], time.Now()
	for i := range list {
		key := lifeOf(&list[i])
		switch before, waits := p.held[key]; {
		case waits:
			before.Idle += at.Sub(before.since)
			p.held[key] = heldCopy{record.Merge(before.ConnectionCopy, list[i]), at}
		case (p.now[key] || p.earlier[key]) && len(p.held) < paceMost:
			p.held[key] = heldCopy{list[i], at}
		default:
			if len(p.now) < paceMost {
				p.now[key] = true
			}
			due = append(due, list[i])
		}
	}
	return due
}

// endPeriod passes on what was held.
func (p *pace) endPeriod() {
	p.mu.Lock()
	at := time.Now()
	list := make([]report.ConnectionCopy, 0, len(p.held))
	for _, c := range p.held {
		c.Idle += at.Sub(c.since)
		list = append(list, c.ConnectionCopy)
	}
	if len(p.now) == 0 && len(p.held) == 0 {
		p.timer = nil // the next copy begins a period
	} else {
		p.now, p.earlier = map[life]bool{}, p.now
		clear(p.held)
		p.timer.Reset(paceTime)
	}
	p.mu.Unlock()
	if len(list) > 0 {
		p.yield(list)
	}
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
