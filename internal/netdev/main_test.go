package netdev

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

const patience = 20 * time.Second

// recorder keeps the events that Run delivered.
type recorder struct {
	net      *Net
	mu       sync.Mutex
	names    []string // of the links, at the last event about them
	links    int
	nextHops int
}

func (r *recorder) on(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Links {
		r.names = nil
		for _, l := range r.net.Links() {
			r.names = append(r.names, l.Name)
		}
		r.links++
	}
	if e.NextHops {
		r.nextHops++
	}
}

// shown says whether the last event about links showed this one.
func (r *recorder) shown(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.names, name)
}

func (r *recorder) counts() (links, nextHops int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links, r.nextHops
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
	r := &recorder{net: n}
	startRun(t, n, r)
	return n, r
}

func startRun(t *testing.T, n *Net, r *recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Run(ctx, r.on); !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
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
