package netdev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/test/netnstest/labtest"
)

const keeperPatience = 20 * time.Second

// flakyNeighbours fails while broken is true.
type flakyNeighbours struct {
	neighbourKernel
	broken atomic.Bool
}

func (f *flakyNeighbours) LookUp(ctx context.Context, hosts []netip.Addr, each func(i int, rt netlink.Route, err error)) error {
	if f.broken.Load() {
		return errors.New("broken")
	}
	return f.neighbourKernel.LookUp(ctx, hosts, each)
}

// TestChoose checks that if there are more next hops than can be managed, those that already are
// stay.
func TestChoose(t *testing.T) {
	t.Parallel()
	all := map[mirror.Hop]bool{}
	for i := range 100 {
		all[mirror.Hop{Link: i}] = i < 9
	}
	managed := func(h mirror.Hop) bool { return all[h] }
	for range 20 {
		chosen := chooseNeighbours(maps.Keys(all), 10, managed)
		kept := 0
		for h := range chosen {
			if managed(h) {
				kept++
			}
		}
		if len(chosen) != 10 || kept != 9 {
			t.Fatalf("%d were chosen, and %d of 9 kept", len(chosen), kept)
		}
	}
	if n := len(chooseNeighbours(maps.Keys(all), 100, managed)); n != 100 {
		t.Errorf("%d were chosen, want all", n)
	}
}

// TestKeeperRetries checks that failed lookups of endpoints are retried, and that the error is
// available meanwhile.
func TestKeeperRetries(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	ns, err := netlink.OpenNamespace(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	m, err := mirror.Open(ns, log)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	k, err := newNeighbourKeeper(ns, m, func() {}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	f := &flakyNeighbours{neighbourKernel: k.conn}
	f.broken.Store(true)
	k.conn = f
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { k.Run(ctx) })
	running.Go(func() { m.Run(ctx, func(mirror.Change) {}) })

	k.Set(slices.Values([]netip.Addr{netip.MustParseAddr("10.1.0.2")}))
	labtest.Eventually(t, keeperPatience, func(context.Context) error {
		if since, err := k.LastError(); err == nil || since.IsZero() {
			return fmt.Errorf("LastError does not report the failure and its time: %v, %w", since, err)
		}
		return nil
	})
	f.broken.Store(false)
	labtest.Eventually(t, keeperPatience, func(context.Context) error {
		if out := labtest.Run(t, a, "ip", "neigh", "show", "10.1.0.2"); !strings.Contains(out, "managed") {
			return fmt.Errorf("neighbour: %q", out)
		}
		_, err := k.LastError()
		return err
	})
}

// TestRouteErrors checks that RouteError follows the routes of an endpoint, and that each change is
// reported.
func TestRouteErrors(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	n, err := OpenAt(a.Path(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	k := n.Neighbours()
	reports := make(chan error, 8)
	endpoint := netip.MustParseAddr("192.0.2.1")
	k.FollowRouteErrors(func() { reports <- k.RouteError(endpoint) })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { k.Run(ctx) })
	check := func(lost bool) {
		t.Helper()
		select {
		case err := <-reports:
			if (err != nil) != lost {
				t.Errorf("got error %v, want one: %t", err, lost)
			}
		case <-time.After(keeperPatience):
			t.Fatalf("no report, want one of an error: %t", lost)
		}
	}
	k.Set(slices.Values([]netip.Addr{endpoint}))
	check(true)
	labtest.Run(t, a, "ip", "route", "add", "192.0.2.0/24", "via", "10.1.0.2")
	k.Invalidate()
	check(false)
	labtest.Run(t, a, "ip", "route", "delete", "192.0.2.0/24")
	k.Invalidate()
	check(true)
	if n := len(reports); n != 0 {
		t.Errorf("got %d more reports, want none", n)
	}
}

// TestLinkGone checks that between the removal of an interface and the answer about another path,
// the problem has a description.
func TestLinkGone(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	ns, err := netlink.OpenNamespace(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	m, err := mirror.Open(ns, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	k := &NeighbourKeeper{mirror: m, paths: map[netip.Addr]*neighbourPath{netip.MustParseAddr("10.1.0.2"): {link: 4711}}}
	problems := k.Problems()
	if len(problems) != 1 || problems[0].What != "the interface that led to endpoint 10.1.0.2 is gone" || problems[0].Hint == "" {
		t.Errorf("problems: %+v", problems)
	}
}
