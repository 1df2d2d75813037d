package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"loxilb/internal/config"
	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/host/machine"
	"loxilb/internal/lb"
)

// openShared reads the desired state, and shares it if --store is set. It then rolls back a change
// that was not confirmed in time, at other nodes as well.
func openShared(ctx context.Context, c *config.Config, log *slog.Logger) (state *desired.State, closeState func(), err error) {
	if state, err = openState(c.StateDir, log); err != nil {
		return nil, nil, err
	}
	stopSharing, err := share(ctx, c, state, log)
	if err != nil {
		return nil, nil, errors.Join(err, state.Close())
	}
	state.RollBackIfDue(log)
	return state, func() {
		_ = stopSharing() // the connection is closed
		_ = state.Close()
	}, nil
}

// openState reads the desired state, and makes it check each change against the data path's
// capacity.
func openState(dir string, log *slog.Logger) (*desired.State, error) {
	admission := compile.NewAdmission()
	state, err := desired.Open(dir, log, desired.WithAdmission(func(before, after desired.ServicesAt, changed []lb.Key) error {
		err := admission.Check(before, after, changed)
		if limit, ok := errors.AsType[*compile.LimitError](err); ok {
			return capacityError{limit}
		}
		return err
	}), desired.WithOrigin(bootAndNamespace()))
	if err != nil {
		return nil, err
	}
	for _, err := range admission.Load(state.Services.At(state.Snapshot())) {
		log.Warn("not all stored services fit into the data path", "why", err)
	}
	return state, nil
}

// capacityError converts compile's refusal to an error of the REST API.
type capacityError struct{ *compile.LimitError }

func (capacityError) Is(target error) bool { return target == store.ErrLimit }

// publishRevision publishes the outcome of a change that needs confirmation.
func (p *daemon) publishRevision(r *store.Revision, outcome desired.Outcome) {
	action := [...]event.Action{desired.Waiting: event.Began, desired.Resolved: event.Ended, desired.RolledBack: event.Removed}[outcome]
	p.hub.Publish(event.Revision{Number: r.Number, Action: action, Until: r.Confirm, Doing: r.Doing, Who: r.Who})
}

// bootAndNamespace identifies this boot of the machine and this network namespace.
func bootAndNamespace() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // no /proc: then roles last as long as the state directory
	}
	cookie, err := machine.NamespaceCookie()
	if err != nil {
		return strings.TrimSpace(string(boot))
	}
	return fmt.Sprintf("%s netns-%d", strings.TrimSpace(string(boot)), cookie)
}
