package desired_test

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// TestDrains checks that drains are restored by a restart, and that Apply gives drained endpoints
// weight 0, and changes nothing else.
func TestDrains(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	s, err := desired.Open(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	want := []lb.Drain{{Addr: first, Port: 80, Deadline: at, Rate: 200}, {Addr: second, Rate: 1}}
	_, _, err = s.Commit("test", func(tx *store.Tx) error {
		for _, d := range want {
			if err := s.Drains.Put(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Commit("test", func(tx *store.Tx) error { return s.Drains.Put(tx, lb.Drain{Addr: first, Rate: lb.MaxEndRate + 1}) }); err == nil {
		t.Error("a rate out of range was accepted")
	}
	s.Close()
	if s, err = desired.Open(dir, log); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := s.Snapshot()
	for _, d := range want {
		got, ok := s.Drains.Get(now, d.Key())
		persistent := got.Deadline.IsZero() || got.Deadline != got.Deadline.Round(0) // the wall clock may be set
		if !ok || got.Key() != d.Key() || got.Rate != d.Rate || !got.Deadline.Equal(d.Deadline) || !persistent {
			t.Errorf("%s: got %+v, %v, want ok, got.Key() == d.Key(), got.Rate == d.Rate, got.Deadline == d.Deadline without a monotonic clock",
				d.Key(), got, ok)
		}
		if a, ok := desired.DrainedAddr(s.Drains.ID(d.Key())); !ok || a != d.Addr {
			t.Errorf("the address of drain %s is %v, %v", d.Key(), a, ok)
		}
	}
	service := lb.Service{Endpoints: []lb.Endpoint{
		{Addr: first, Port: 80, Weight: 1}, {Addr: first, Port: 81, Weight: 2}, {Addr: second, Port: 80, Weight: 3}, {Addr: second, Port: 81, Weight: 4},
	}}
	weighed := s.Drains.Apply(now, service)
	for i, weight := range []uint16{0, 2, 0, 0} {
		if e := weighed.Endpoints[i]; uint16(e.Weight) != weight {
			t.Errorf("%v has weight %d, want %d", e.AddrPort(), e.Weight, weight)
		}
		if service.Endpoints[i].Weight == 0 {
			t.Error("the service itself was changed")
		}
	}
}

// TestNextDeadline checks that the server IDs of a drained endpoint are due for removal at the
// deadline of its drain, even if the deadline has passed since Apply, and not
// due after their removal.
func TestNextDeadline(t *testing.T) {
	t.Parallel()
	s, err := desired.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	past, future, never := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	_, _, err = s.Commit("test", func(tx *store.Tx) error {
		for _, d := range []lb.Drain{
			{Addr: past, Rate: 1, Deadline: time.Now().Add(-time.Second)}, {Addr: future, Rate: 1, Deadline: time.Now().Add(time.Hour)}, {Addr: never, Rate: 1},
		} {
			if err := s.Drains.Put(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	now := s.Snapshot()
	service := func(list ...netip.Addr) lb.Service {
		var out lb.Service
		for _, a := range list {
			out.Endpoints = append(out.Endpoints, lb.Endpoint{Addr: a, Port: 443, Weight: 1, ServerID: "0a"})
		}
		return out
	}
	weighed, plain := s.Drains.Apply(now, service(past)), service(past, future)
	plain.Endpoints[0].ServerID, plain.Endpoints[1].ServerID = "", ""
	for _, c := range []struct {
		what      string
		service   lb.Service
		from, end time.Duration
	}{
		{"weighed before a deadline that has passed", service(past, future), 1, time.Second},
		{"weighed after it", weighed, 0, 0},
		{"a later deadline", service(future, never), 50 * time.Minute, time.Hour},
		{"no deadline", service(never), 0, 0},
		{"no server ID", plain, 0, 0},
	} {
		if next := s.Drains.NextDeadline(now, &c.service); next < c.from || next > c.end {
			t.Errorf("%s: due after %v, want %v to %v", c.what, next, c.from, c.end)
		}
	}
}
