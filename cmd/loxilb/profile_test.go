package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"loxilb/test/netnstest/labtest"
)

// TestProfile checks that a profile is complete after SIGHUP, and that the process continues.
func TestProfile(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "profile")
	stop, err := profile(path, log)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := profile(path+"2", log); err == nil {
		t.Error("a second one was begun")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		info, err := os.Stat(path)
		if err == nil && info.Size() == 0 {
			err = errors.New("it is empty")
		}
		return err
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info.Mode(), err)
	}
	if _, err := profile("/nowhere/profile", log); err == nil {
		t.Error("there is no such directory")
	}
}
