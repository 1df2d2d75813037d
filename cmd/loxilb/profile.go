package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync"
	"syscall"
)

// profile writes where the daemon spends its time into a file, until it is stopped, or by SIGHUP
// before that. The file is its owner's alone: a profile has the names of what is at work.
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
		for range hangup { // later ones are none of a lost terminal either
			stop()
		}
	}()
	return stop, nil
}
