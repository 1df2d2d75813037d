package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestFollowInterfaces checks that each tick tries each interface, and that a failure and its end
// are logged once.
func TestFollowInterfaces(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log bytes.Buffer
	looks, tried := make(chan time.Time), []string{}
	attach := func(name string) error {
		tried = append(tried, name)
		if n := len(tried); name == "eth1" && n > 2 && n <= 6 { // at the second and the third tick
			return errors.New("no such interface")
		}
		return nil
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		followInterfaces(ctx, looks, []string{"eth0", "eth1"}, attach, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	for range 5 {
		looks <- time.Time{}
	}
	cancel()
	<-done
	if got, want := strings.Join(tried, " "), strings.TrimSpace(strings.Repeat("eth0 eth1 ", 5)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, want := range []string{"not decapsulated; trying again\" interface=eth1 error=\"no such interface\"", "decapsulating packets again\" interface=eth1"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("%s is not there once:\n%s", want, &log)
		}
	}
}
