package event

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Capacity is the number of events that a hub keeps, for all subscribers together.
const Capacity = 4096

// Hub distributes events to subscribers. It keeps the last Capacity events in one ring that all
// subscribers read, so publishing never waits, and its cost does not depend on their number. A
// subscriber that falls behind loses the oldest events, and is notified of their number.
//
// A queue for each subscriber would cost memory for each one that stops reading, and the publisher
// would have to choose which events to drop.
type Hub struct {
	mu      sync.Mutex
	ring    []Event                         // by Seq modulo Capacity
	last    uint64                          // Seq of the last event; 0: none yet
	waiting map[*Subscription]chan struct{} // closed when a matching event arrives; these subscribers have seen all earlier ones
	now     func() time.Time
}

// NewHub returns an empty hub.
func NewHub() *Hub {
	return &Hub{ring: make([]Event, 0, 64), waiting: map[*Subscription]chan struct{}{}, now: time.Now}
}

// Publish adds events. A nil hub discards them, so parts can be used without one.
func (h *Hub) Publish(bodies ...Body) {
	if h == nil || len(bodies) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for _, b := range bodies {
		h.last++
		e := Event{Seq: h.last, Time: now, Body: b}
		if len(h.ring) < Capacity {
			h.ring = append(h.ring, e)
		} else {
			h.ring[(h.last-1)%Capacity] = e
		}
		h.wake(&e)
	}
}

// wake ends the wait of subscribers that want the event.
func (h *Hub) wake(e *Event) {
	for s, more := range h.waiting {
		if s.wants(e) {
			close(more)
			delete(h.waiting, s)
		} else {
			s.seen = e.Seq
		}
	}
}

// Last returns the number of the newest event, 0 before the first.
func (h *Hub) Last() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Subscribe returns a reader of future events of some kinds (none given: all).
func (h *Hub) Subscribe(kinds ...Kind) *Subscription {
	return h.SubscribeAfter(h.Last(), kinds...)
}

// SubscribeAfter is Subscribe for the events after number seq that are still kept; 0 means all.
func (h *Hub) SubscribeAfter(seq uint64, kinds ...Kind) *Subscription {
	return &Subscription{hub: h, seen: seq, kinds: kinds}
}

// Subscription reads events in order. It belongs to one goroutine, and needs no closing.
type Subscription struct {
	hub   *Hub
	seen  uint64
	kinds []Kind
	lost  uint64
}

// Next waits for the next event. lost counts events, of any kind, that were overwritten before this
// subscriber read them; it is reported once. The error is ctx's.
func (s *Subscription) Next(ctx context.Context) (e Event, lost uint64, err error) {
	for {
		e, ok, more := s.poll(true)
		if ok {
			lost, s.lost = s.lost, 0
			return e, lost, nil
		}
		select {
		case <-ctx.Done():
			s.hub.mu.Lock()
			delete(s.hub.waiting, s)
			s.hub.mu.Unlock()
			return Event{}, 0, ctx.Err()
		case <-more:
		}
	}
}

// Poll is Next without waiting: ok is false if there is no event now.
func (s *Subscription) Poll() (e Event, lost uint64, ok bool) {
	e, ok, _ = s.poll(false)
	if ok {
		lost, s.lost = s.lost, 0
	}
	return e, lost, ok
}

// poll finds the next matching event, or, with wait, returns the channel that signals one.
func (s *Subscription) poll(wait bool) (e Event, ok bool, more <-chan struct{}) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.seen > h.last {
		s.seen = h.last // the number is from an earlier run of the daemon
	}
	if oldest := h.last - uint64(len(h.ring)); s.seen < oldest {
		s.lost += oldest - s.seen
		s.seen = oldest
	}
	for s.seen < h.last {
		e = h.ring[s.seen%Capacity]
		s.seen++
		if s.wants(&e) {
			return e, true, nil
		}
	}
	if !wait {
		return Event{}, false, nil
	}
	coming := make(chan struct{})
	h.waiting[s] = coming
	return Event{}, false, coming
}

func (s *Subscription) wants(e *Event) bool {
	return len(s.kinds) == 0 || slices.Contains(s.kinds, e.Kind())
}
