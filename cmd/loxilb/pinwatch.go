package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"loxilb/internal/kernel/datapath/pins"
)

// pinWatch detects that another process has detached the data path. Otherwise the daemon would not
// notice: writes to maps without readers succeed.
type pinWatch struct {
	lock   *pins.Lock
	log    *slog.Logger
	retire func(context.Context) // gives up VIPs, roles and routes

	mu    sync.Mutex
	since time.Time // zero: the data path is attached
}

var errTaken = errors.New("nothing is balanced: `loxilb --detach --force` detached the data path (restart loxilb)")

// lastError returns an error if the data path was detached, and since when.
func (w *pinWatch) lastError() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() && w.lock.Lost() {
		w.since = time.Now()
		w.log.Error("nothing is balanced: the data path was detached", "hint", "restart loxilb")
	}
	if w.since.IsZero() {
		return time.Time{}, nil
	}
	return w.since, errTaken
}

// run watches until ctx ends or the data path is lost. Then it gives up this daemon's VIPs, roles
// and routes and releases the lock, for which a detach waits.
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

// owning returns a function that runs the parts which maintain this node's VIPs. They end before
// the daemon gives up the VIPs.
func (p *daemon) owning(ctx context.Context, group *errgroup.Group) (run func(func(context.Context))) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	p.pins.retire = func(ctx context.Context) {
		end()
		parts.Wait()
		p.retire(ctx)
	}
	return func(part func(context.Context)) {
		parts.Add(1)
		group.Go(func() error {
			defer parts.Done()
			part(ctx)
			return nil
		})
	}
}

// retire gives up this node's VIPs, roles and routes after its data path was detached. Otherwise
// the node would answer for the VIPs without serving them.
func (p *daemon) retire(ctx context.Context) {
	p.bfd.Decline(true)
	if p.pausable != nil {
		if err := p.pausable.Pause(ctx, "the data path was detached"); err != nil {
			p.log.Error("BGP sessions cannot be ended", "error", err)
		}
	}
	if err := p.network.Retire(ctx, errTaken); err != nil {
		p.log.Error("VIPs cannot be released", "error", err)
	}
}
