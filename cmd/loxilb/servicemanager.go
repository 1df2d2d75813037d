package main

import (
	"context"
	"log/slog"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager reports the daemon's state to the program that started it, usually systemd, by
// sd_notify(3). Without a manager it does nothing.
type serviceManager struct {
	alive func() // returns as long as nothing is stuck
	log   *slog.Logger
}

// started reports that the daemon is ready, and then, twice per watchdog interval, that it is
// alive. A stuck daemon stays silent: the manager ends it, with a dump of its goroutines, and
// starts it again. Packets flow meanwhile.
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
