package event

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func object(key string) Object { return Object{ObjectKind: "service", Key: key, Action: Applied} }

func TestOrderAndFilter(t *testing.T) {
	t.Parallel()
	h := NewHub()
	h.Publish(object("before"))
	all, links := h.Subscribe(), h.Subscribe(KindLink)
	h.Publish(object("a"))
	h.Publish(Link{Index: 2, Name: "eth0", Action: Added})
	for i, want := range []string{"service a", "eth0"} {
		e, lost, err := all.Next(t.Context())
		if err != nil || lost != 0 || e.Object() != want || e.Seq != uint64(i+2) {
			t.Errorf("%+v, %d lost, %v; want %s", e, lost, err, want)
		}
	}
	if e, _, ok := links.Poll(); !ok || e.Object() != "eth0" {
		t.Errorf(`got %+v, want ok, e.Object() == "eth0"`, e)
	}
	if e, _, ok := links.Poll(); ok {
		t.Errorf("more than there is: %+v", e)
	}
	if e, _, ok := h.SubscribeAfter(0).Poll(); !ok || e.Object() != "service before" {
		t.Errorf("the first event kept is %+v", e)
	}
	if e, _, ok := h.SubscribeAfter(77).Poll(); ok {
		t.Errorf("a number that never was gives %+v", e)
	}
}

// TestSlowSubscriber checks that a subscriber that does not read loses the oldest events, gets
// their number, and delays no other.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	h := NewHub()
	s := h.Subscribe()
	const published = Capacity + 100
	for range published {
		h.Publish(object("x"))
	}
	e, lost, ok := s.Poll()
	if !ok || lost != 100 || e.Seq != 101 {
		t.Errorf("event %d, %d lost", e.Seq, lost)
	}
	if e, lost, ok := s.Poll(); !ok || lost != 0 || e.Seq != 102 {
		t.Errorf("event %d, %d lost", e.Seq, lost)
	}
}

func TestNextWaits(t *testing.T) {
	t.Parallel()
	h := NewHub()
	var readers sync.WaitGroup
	for range 4 {
		s := h.Subscribe()
		readers.Go(func() {
			for want := uint64(1); want <= 500; want++ {
				if e, lost, err := s.Next(t.Context()); err != nil || lost != 0 || e.Seq != want {
					t.Errorf("event %d, %d lost, %v; want %d", e.Seq, lost, err, want)
					return
				}
			}
		})
	}
	for range 500 {
		h.Publish(object("x"))
	}
	readers.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := h.Subscribe().Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the error context.DeadlineExceeded", err)
	}
}

// TestWaitersSeeWhatTheyWant checks that a subscriber to some kinds is not woken by the others, and
// does not count them as lost.
func TestWaitersSeeWhatTheyWant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub()
		links := h.Subscribe(KindLink)
		done := make(chan Event)
		go func() {
			e, lost, err := links.Next(t.Context())
			if err != nil || lost != 0 {
				t.Errorf("%d lost, %v", lost, err)
			}
			done <- e
		}()
		synctest.Wait()
		more := h.waiting[links]
		for range Capacity + 1 {
			h.Publish(object("x"))
		}
		if h.waiting[links] != more {
			t.Error("a subscriber of links was woken by objects")
		}
		h.Publish(object("x"), Link{Name: "eth0"}, object("x"))
		if e := <-done; e.Object() != "eth0" || e.Seq != Capacity+3 {
			t.Errorf(`got %+v, want e.Object() == "eth0", e.Seq == Kept+3`, e)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := links.Next(ctx); err == nil || len(h.waiting) != 0 {
			t.Errorf("%v, %d still wait", err, len(h.waiting))
		}
	})
}

func TestNilHub(*testing.T) {
	var h *Hub
	h.Publish(object("x"))
}

// TestKinds checks that every kind of event has a body of that kind.
func TestKinds(t *testing.T) {
	t.Parallel()
	bodies := map[Kind]Body{}
	for _, b := range []Body{Link{}, Address{}, Routes{}, Neighbour{}, Health{}, Object{}, Pressure{}, Revision{}, VIP{}, Node{}, Peer{}, Store{}} {
		bodies[b.Kind()] = b
	}
	for _, k := range Kinds() {
		if bodies[k] == nil {
			t.Errorf("no event of kind %s", k)
		}
	}
	if len(bodies) != len(Kinds()) {
		t.Errorf("%d kinds, %d types", len(Kinds()), len(bodies))
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	for want, b := range map[string]Body{
		"interface eth0 (2) changed: it is down":    Link{Index: 2, Name: "eth0", State: "down", Action: Changed},
		"interface eth0 (2) removed":                Link{Index: 2, Name: "eth0", State: "down", Action: Removed},
		"routes changed (7 messages of the kernel)": Routes{Count: 7},
		"routes changed":                            Routes{Count: 1},
		"neighbours have other MAC addresses":       Routes{Count: 2, Neighbours: true},
		"endpoint 10.0.0.1 failed: no route":        Object{ObjectKind: "endpoint", Key: "10.0.0.1", Action: Failed, Error: "no route"},
		"endpoint 10.0.0.1 solved: no route":        Object{ObjectKind: "endpoint", Key: "10.0.0.1", Action: Solved, Error: "no route"},
		"service a applied":                         object("a"),
	} {
		if b.String() != want {
			t.Errorf("the event reads %q, want %q", b, want)
		}
	}
}
