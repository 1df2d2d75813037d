package reconcile

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/host/monotime"
)

// Endpoints is notified of the services' endpoints, and keeps the paths to them resolved.
type Endpoints interface {
	Update(changes map[netip.Addr]bool) // true: added; false: removed. The caller may reuse the map afterwards
}

// Endpoints is notified notifyAfter the first change. The cost of an update grows with the number
// of all endpoints, so the pause after it is at least notifyShare times as long as it took, up to
// longestRest.
const (
	notifyAfter = 100 * time.Millisecond
	notifyShare = 20
)

// notifier notifies Endpoints of added and removed endpoints. It has a goroutine of its own, so no
// change of a service waits for it.
type notifier struct {
	endpoints Endpoints
	notify    chan struct{} // capacity 1

	mu      sync.Mutex
	changes map[netip.Addr]bool // addresses added (true) or removed since
}

func newNotifier(e Endpoints) *notifier {
	return &notifier{endpoints: e, notify: make(chan struct{}, 1), changes: map[netip.Addr]bool{}}
}

// change records that an endpoint was added or removed.
func (n *notifier) change(a netip.Addr, added bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes[a] = added
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
		if !monotime.Sleep(ctx, wait) {
			return
		}
		start := time.Now()
		n.endpoints.Update(n.take())
		wait = max(notifyAfter, min(longestRest, notifyShare*time.Since(start)))
	}
}

// take returns the changes since the last call.
func (n *notifier) take() map[netip.Addr]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	changes := n.changes
	n.changes = map[netip.Addr]bool{}
	return changes
}
