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

// Endpoints is told notifyAfter the first change, or later in a storm: notifying costs as much as there are endpoints, and takes
// one part in notifyShare of the time, unless that means to wait for more than longestRest.
const (
	notifyAfter = 100 * time.Millisecond
	notifyShare = 20
)

// notifier tells Endpoints which endpoints the services have. It has a goroutine of its own, so that no change of a service waits
// for it.
type notifier struct {
	endpoints Endpoints
	notify    chan struct{} // capacity 1

	mu      sync.Mutex
	changes map[netip.Addr]bool // addresses that came (true) or went since
}

func newNotifier(e Endpoints) *notifier {
	return &notifier{endpoints: e, notify: make(chan struct{}, 1), changes: map[netip.Addr]bool{}}
}

// change notes that an endpoint came or went.
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

// run notifies until ctx ends.
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
		wait = max(notifyAfter, min(longestRest, notifyShare*time.Since(start)))
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
