package tables

import (
	"errors"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/loader"
)

// testTables is the tables with their own maps, without the programs.
type testTables struct {
	*Tables
	c *loader.Collection
}

func open(s loader.Settings) (*testTables, error) {
	c, err := loader.Open(s)
	if err != nil {
		return nil, err
	}
	tables, err := Open(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &testTables{tables, c}, nil
}

func (w *testTables) Close() error {
	w.Tables.Close()
	return w.c.Close()
}

func load(t testing.TB) *testTables {
	t.Helper()
	w, err := open(loader.Settings{Connections: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// reload closes the tables and opens them again from their pins.
func reload(t testing.TB, w *testTables) *testTables {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := open(w.c.Settings)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// skip advances the tables' clock, so the quarantine of freed rows ends.
func skip(w *testTables, by time.Duration) {
	was := w.now
	w.now = func() time.Time { return was().Add(by) }
	w.serviceIDs.SetClock(w.now)
	w.endpointIDs.SetClock(w.now)
	w.slots.SetClock(w.now)
}

// sweep frees rows without a connection.
func sweep(t testing.TB, w *testTables) {
	t.Helper()
	if err := w.Reap(func() bool { return true }, func(bool) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// endpointsByID returns the endpoints in the index, by id.
func endpointsByID(w *testTables) map[uint32]*endpoint {
	out := map[uint32]*endpoint{}
	for id, e := range w.endpoints {
		if e != nil {
			out[uint32(id)] = e
		}
	}
	return out
}
