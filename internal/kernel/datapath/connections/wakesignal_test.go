package connections

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/report"
	"loxilb/test/netnstest/labtest"
)

// TestWakeAt checks the number of entries at which the packet path signals: early enough to grow,
// and only near that.
func TestWakeAt(t *testing.T) {
	t.Parallel()
	table := report.Pressure{EntriesMax: 1_000_000, HalfOpenMax: 100_000}
	with := func(p report.Pressure, entries int64) report.Pressure {
		p.Entries = entries
		return p
	}
	for name, c := range map[string]struct {
		p          report.Pressure
		room, more uint64
		slack      int64
		want       int64
	}{
		"empty":                          {with(table, 0), 20_000, 0, 64, 4936},
		"some":                           {with(table, 4000), 20_000, 0, 64, 7936},
		"half full for its size":         {with(table, 10_000), 20_000, 0, 64, 0},
		"a tenth arrives in a second":    {with(table, 0), 20_000, 2000, 64, 4936},
		"a quarter arrives in a second":  {with(table, 0), 20_000, 5000, 64, 0},
		"half-open ones are sooner":      {with(table, 0), 200_000, 0, 64, 6186},
		"half-open ones are not bounded": {report.Pressure{EntriesMax: 1_000_000}, 200_000, 0, 64, 49_936},
		"a quarter of all is sooner":     {report.Pressure{EntriesMax: 100_000}, 200_000, 0, 64, 6186},
		"CPUs count more by themselves":  {with(table, 0), 20_000, 0, 16_384, 0},
	} {
		if got := wakeAt(c.p, c.room, c.more, c.slack); got != c.want {
			t.Errorf("%s: it sleeps until there are %d entries, want %d", name, got, c.want)
		}
	}
}

// TestWakeSignal checks that the signal is armed for an empty table, also with a few connections,
// and fires before the table must grow. Then the table grows at once, before the rate of
// connections is known.
func TestWakeSignal(t *testing.T) {
	t.Parallel()
	d := open(t, loader.Settings{Connections: 500_000})
	send := d.newFlows(t)
	var over <-chan struct{}
	isCalm := func(context.Context) error {
		if over = d.WakeSignal(); over == nil {
			return errors.New("the signal is not armed")
		}
		return nil
	}
	labtest.Eventually(t, 5*time.Second, isCalm)
	for i := range 100 {
		if err := send(i); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-over:
		t.Fatal("100 connections have fired the signal")
	case <-time.After(100 * time.Millisecond):
	}
	before, err := d.shared.Conntrack.Room()
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; uint64(2*i) < before/3; i++ {
		if err := send(i); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-over:
	case <-time.After(2 * time.Second):
		t.Fatal("the table is a third full, and no reader was woken")
	}
	labtest.Eventually(t, 5*time.Second, func(context.Context) error {
		if room, err := d.shared.Conntrack.Room(); err != nil || room < before+growBurst/2 {
			return fmt.Errorf("room for %d entries, which does not grow, %w", room, err)
		}
		return nil
	})
}
