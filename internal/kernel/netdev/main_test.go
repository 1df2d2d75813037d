package netdev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"loxilb/internal/event"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const patience = 20 * time.Second

// recorder collects what Run publishes, like a listener.
type recorder struct {
	hub    *event.Hub
	events *event.Subscription
	mu     sync.Mutex
	names  map[string]bool // names of the existing links
	links  int
	all    []event.Body
	// of events of routes: how many messages they combine, and how many reported changed default
	// routes
	messages, defaults int
}

func newRecorder() *recorder {
	hub := event.NewHub()
	return &recorder{hub: hub, events: hub.Subscribe(), names: map[string]bool{}}
}

// read collects what was published since the last call.
func (r *recorder) read() {
	for {
		e, _, ok := r.events.Poll()
		if !ok {
			return
		}
		r.all = append(r.all, e.Body)
		switch b := e.Body.(type) {
		case event.Link:
			r.links++
			r.names[b.Name] = b.Action != event.Removed
		case event.Routes:
			r.messages += b.Count
			if b.Defaults {
				r.defaults++
			}
		}
	}
}

// exists reports whether the link exists according to its last event.
func (r *recorder) exists(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	return r.names[name]
}

// linkEvents counts the events of links.
func (r *recorder) linkEvents() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	return r.links
}

func (r *recorder) routeEvents() (messages, defaults int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	return r.messages, r.defaults
}

// awaitSurvey waits for the event at the end of a survey. That event reports default routes, like
// the marker of expiresNextHops, which would mistake it for the marker.
func (r *recorder) awaitSurvey(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if _, defaults := r.routeEvents(); defaults == 0 {
			return errors.New("not surveyed")
		}
		return nil
	})
}

// expiresNextHops reports whether change causes an event that expires cached next hops. It then
// adds a default route as a marker, which always causes an event: the event reports that all
// earlier changes have been processed. metric must differ in each call.
func (r *recorder) expiresNextHops(t *testing.T, h *netnstest.Host, metric int, change func()) bool {
	t.Helper()
	messages, defaults := r.routeEvents()
	change()
	run(t, h, "ip", "route", "add", "default", "via", fmt.Sprintf("10.1.0.%d", 100+metric), "metric", fmt.Sprint(metric))
	after := 0
	eventually(t, func() error {
		n, marked := r.routeEvents()
		if marked == defaults {
			return errors.New("there was no event of the default route")
		}
		after = n
		return nil
	})
	return after > messages+1
}

func openHost(t *testing.T, h *netnstest.Host) *Net {
	t.Helper()
	n, err := OpenAt(h.Path(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return n
}

// runHost opens the host's network and follows it until the test ends.
func runHost(t *testing.T, h *netnstest.Host) (*Net, *recorder) {
	t.Helper()
	n := openHost(t, h)
	r := newRecorder()
	startRun(t, n, r)
	return n, r
}

func startRun(t *testing.T, n *Net, r *recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Run(ctx, r.hub)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	labtest.Eventually(t, patience, func(context.Context) error { return f() })
}

func run(t *testing.T, h *netnstest.Host, args ...string) string {
	t.Helper()
	return labtest.Run(t, h, args...)
}

func pair(t *testing.T) (a, b *netnstest.Host) {
	t.Helper()
	return labtest.Pair(t)
}
