package main

import (
	"log/slog"
	"testing"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// TestPeaks checks that peaks of the table and of services with a limit are the maxima of all
// readings, and that deleted services have none.
func TestPeaks(t *testing.T) {
	t.Parallel()
	state, err := desired.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	limited, err := lb.ParseService("20.20.20.1:80/tcp endpoints=31.31.31.1:80 max-connections=100")
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(tx *store.Tx) error) {
		t.Helper()
		if _, _, err := state.Commit("test", f); err != nil {
			t.Fatal(err)
		}
	}
	change(func(tx *store.Tx) error { return state.Services.Put(tx, limited) })
	p := &peaks{state: state}
	for _, n := range []uint64{3, 9, 5} {
		p.update(10*n, func(lb.Key) uint64 { return n })
	}
	if p.Table() != 90 || p.Service(limited.Key) != 9 || p.Service(lb.Key{}) != 0 {
		t.Errorf("got %d, %d, want p.Table() == 90, p.Service(limited.Key) == 9, p.Service(lb.Key{}) == 0",
			p.Table(), p.Service(limited.Key))
	}
	limited.MaxConnections = 0
	change(func(tx *store.Tx) error { return state.Services.Put(tx, limited) })
	p.update(1, func(lb.Key) uint64 { return 50 })
	if p.Table() != 90 || p.Service(limited.Key) != 0 {
		t.Errorf("without a limit: %d, %d", p.Table(), p.Service(limited.Key))
	}
}
