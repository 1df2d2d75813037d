package reconcile

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Endpoints is told which endpoints there are, to keep the way to them known.
type Endpoints interface {
	Update(changes map[netip.Addr]bool) // true: added; false: removed. The map is the caller's again afterwards
}

// notifyAfter collects changes before Endpoints is told of them, and notifyShare bounds the part of the time that it
// takes: notifying costs as much as there are endpoints, and no change of a service waits for it.
const (
	notifyAfter = 100 * time.Millisecond
	notifyShare = 20
)

// notifier tells Endpoints of the reconciler's, some time later and from a goroutine of its own.
type notifier struct {
	endpoints Endpoints
	notify    chan struct{} // capacity 1

	mu      sync.Mutex
	changes map[netip.Addr]bool // addresses that came (true) or went since
}

func newNotifier(e Endpoints) *notifier {
	return &notifier{endpoints: e, notify: make(chan struct{}, 1), changes: map[netip.Addr]bool{}}
}

// change says that an endpoint came or went.
func (n *notifier) change(a netip.Addr, came bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes[a] = came
	n.signal()
}

func (n *notifier) signal() {
	select {
	case n.notify <- struct{}{}:
	default:
	}
}

// run tells until ctx ends.
func (n *notifier) run(ctx context.Context) {
	wait := notifyAfter
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.notify:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		start := time.Now()
		n.endpoints.Update(n.take())
		wait = max(notifyAfter, notifyShare*time.Since(start))
	}
}

// take returns what changed since it was called last.
func (n *notifier) take() map[netip.Addr]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	changes := n.changes
	n.changes = map[netip.Addr]bool{}
	return changes
}
