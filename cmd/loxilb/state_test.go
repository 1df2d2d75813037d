package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"loxilb/internal/config"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// TestOpenShared checks that a start rolls back a change that was not confirmed in time. It does
// not roll back a shared change without the shared store, which would restore the change.
func TestOpenShared(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for servers, want := range map[string]int{"": 0, "127.0.0.1:1": 1} {
		t.Run(servers, func(t *testing.T) {
			t.Parallel()
			c := &config.Config{StateDir: t.TempDir()}
			state, err := openState(c.StateDir, log)
			if err != nil {
				t.Fatal(err)
			}
			one, err := lb.ParseService("20.20.20.1:80/tcp endpoints=31.31.31.1:1")
			if err != nil {
				t.Fatal(err)
			}
			by := store.CommitOptions{Owner: "rest", Confirm: time.Now().Add(-time.Second)}
			if _, _, err := state.CommitBy(by, func(tx *store.Tx) error { return state.Services.Put(tx, one) }); err != nil {
				t.Fatal(err)
			}
			if err := state.Close(); err != nil {
				t.Fatal(err)
			}
			if servers != "" {
				c.Store = config.Store{Servers: []string{servers}, Prefix: "/test"}
			}
			state, closeState, err := openShared(context.Background(), c, log)
			if err != nil {
				t.Fatal(err)
			}
			defer closeState()
			if n := state.Services.Len(state.Snapshot()); n != want {
				t.Errorf("%d services after the start, want %d", n, want)
			}
			if _, waits := state.Waiting(); waits != (want > 0) {
				t.Errorf("the change still waits: %v", waits)
			}
		})
	}
}
