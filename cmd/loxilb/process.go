package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager reports the daemon's state to the program that started it, usually systemd, by
// sd_notify(3). Without a manager it does nothing.
type serviceManager struct {
	alive func() // blocks if a part is stuck
	log   *slog.Logger
}

// started reports readiness, and then, twice per watchdog interval, that the daemon is alive. A
// stuck daemon stays silent: the manager ends it, with a dump of its goroutines, and restarts it.
// Packets continue to flow.
func (m serviceManager) started(ctx context.Context) {
	m.notify(systemd.SdNotifyReady)
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
		m.notify(systemd.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m serviceManager) stopping() { m.notify(systemd.SdNotifyStopping) }

func (m serviceManager) notify(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		m.log.Warn("the service manager cannot be notified", "state", state, "error", err)
	}
}

const (
	// memoryCheck is the interval of checks for free memory, and memoryKept is how much of it is
	// kept for the next change. Go is slow to return memory below the goal of its next collection:
	// 130 MB after 65,536 services in one request.
	memoryCheck = 10 * time.Second
	memoryKept  = 32 << 20 // bytes
)

// returnMemory returns free memory to the kernel until ctx ends.
func returnMemory(ctx context.Context) {
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	tick := time.NewTicker(memoryCheck)
	defer tick.Stop()
	var live uint64 // bytes in use after the last return
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(free)
		if free[0].Value.Uint64() > memoryKept || free[1].Value.Uint64() > live+memoryKept {
			debug.FreeOSMemory()
			metrics.Read(free)
			live = free[1].Value.Uint64()
		}
	}
}

// profile writes a CPU profile to a file until it is stopped or SIGHUP arrives. Only the owner can
// read the file, since a profile may reveal secrets.
func profile(path string, log *slog.Logger) (stop func(), err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--cpuprofile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("--cpuprofile: %w", err)
	}
	log.Info("a CPU profile is being written; SIGHUP ends it", "file", path)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	stop = sync.OnceFunc(func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			log.Error("the CPU profile is incomplete", "file", path, "error", err)
			return
		}
		log.Info("the CPU profile is written", "file", path)
	})
	go func() {
		for range hangup { // also later ones: SIGHUP must not end the daemon
			stop()
		}
	}()
	return stop, nil
}
