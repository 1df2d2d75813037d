package mirror

import (
	"context"
	"sync"
	"time"
)

// Inbox merges changes until somebody takes them. It belongs to one reader.
type Inbox struct {
	used    bool // Wait was called, and is to pause
	mu      sync.Mutex
	pending Change
	ready   chan struct{} // capacity 1: something is pending
}

// NewInbox makes an empty one.
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

// Take returns what is pending.
func (b *Inbox) Take() Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.pending
	b.pending = Change{}
	return c
}

// Wait pauses, but for the first time, and waits until something is pending; false: ctx ended.
func (b *Inbox) Wait(ctx context.Context, pause time.Duration) bool {
	if b.used {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
	b.used = true
	select {
	case <-ctx.Done():
		return false
	case <-b.ready:
		return true
	}
}
