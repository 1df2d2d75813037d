package main

import (
	"context"
	"log/slog"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager tells the program that has started this one how it is, by sd_notify(3): systemd,
// most often. Where there is none, nothing is told.
type serviceManager struct {
	alive func() // returns as long as nothing is stuck
	log   *slog.Logger
}

// started tells that packets are balanced, and from then on, twice in each time that the manager
// waits, that the daemon is alive. What is stuck is silent: the manager ends the daemon then, which
// writes where each of its threads was, and starts it anew. Packets go on meanwhile.
func (m serviceManager) started(ctx context.Context) {
	m.tell(systemd.SdNotifyReady)
	wait, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("the service manager's watchdog is not served", "error", err)
	}
	if wait <= 0 {
		return
	}
	tick := time.NewTicker(wait / 2)
	defer tick.Stop()
	for {
		m.alive()
		m.tell(systemd.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m serviceManager) stopping() { m.tell(systemd.SdNotifyStopping) }

func (m serviceManager) tell(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		m.log.Warn("the service manager cannot be notified", "state", state, "error", err)
	}
}
