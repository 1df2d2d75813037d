package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/pins"
)

// pinWatch detects that another process took over the data path. Nothing else would show it: writes
// to maps without readers succeed.
type pinWatch struct {
	lock   *pins.Lock
	log    *slog.Logger
	retire func(context.Context) // gives up what this daemon owns

	mu    sync.Mutex
	since time.Time // zero: it is there
}

var errTaken = errors.New("nothing is balanced: `loxilb --detach --force` has taken the data path away from this daemon (restart loxilb)")

// lastError looks whether it is so now.
func (w *pinWatch) lastError() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() && w.lock.Lost() {
		w.since = time.Now()
		w.log.Error("nothing is balanced: the data path was taken away from this daemon", "hint", "restart loxilb")
	}
	if w.since.IsZero() {
		return time.Time{}, nil
	}
	return w.since, errTaken
}

// run watches until ctx ends or the data path is lost. Then it gives up what this daemon owns and
// releases the lock, for which a detach waits.
func (w *pinWatch) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watching.Go(func() {
		err := w.lock.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if err != nil {
			w.log.Debug("changes of the pin directory are noticed late", "error", err)
		}
	})
	every := time.NewTicker(5 * time.Second)
	defer every.Stop()
	for {
		if _, err := w.lastError(); err != nil {
			w.retire(ctx)
			_ = w.lock.Release()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-changed:
		}
	}
}
