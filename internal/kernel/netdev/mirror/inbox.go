package mirror

import (
	"context"
	"sync"
	"time"

	"loxilb/internal/host/monotime"
)

// Inbox merges changes until they are taken. It belongs to one reader.
type Inbox struct {
	mu      sync.Mutex
	pending Change
	ready   chan struct{} // capacity 1: something is pending
}

// NewInbox returns an empty Inbox.
func NewInbox() *Inbox { return &Inbox{ready: make(chan struct{}, 1)} }

// Put adds a change.
func (b *Inbox) Put(c Change) {
	if c.Empty() {
		return
	}
	b.mu.Lock()
	b.pending.Merge(c)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// Take returns the pending changes.
func (b *Inbox) Take() Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.pending
	b.pending = Change{}
	return c
}

// Wait waits until something is pending; false: ctx ended.
func (b *Inbox) Wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-b.ready:
		return true
	}
}

// Pause waits for more changes; false: ctx ended.
func (b *Inbox) Pause(ctx context.Context, pause time.Duration) bool {
	return monotime.Sleep(ctx, pause)
}
