package main

import (
	"log/slog"
	"strings"
	"testing"

	"loxilb/internal/event"
	"loxilb/internal/lb/bgp"
)

// TestUpWithoutBFD checks that a session without the BFD that it should have is explained.
func TestUpWithoutBFD(t *testing.T) {
	t.Parallel()
	b := newBGPSessions(slog.New(slog.DiscardHandler), event.NewHub(), func(neighbor string) bool { return neighbor == "10.0.0.2" })
	for _, c := range []struct {
		bgp.Session
		want string
	}{
		{bgp.Session{Neighbor: "10.0.0.2", State: bgp.Established, BFD: "Down"}, "the BFD session for roles (loxicmd get bfd) gets the packets of this address"},
		{bgp.Session{Neighbor: "10.0.0.3", State: bgp.Established, BFD: "Init"}, "BFD is Init, so a silent neighbor is noticed late"},
		{bgp.Session{Neighbor: "10.0.0.2", State: "Active", BFD: "Down"}, "the session is down (Active)"},
	} {
		if got := b.why(&c.Session); !strings.Contains(got, c.want) || c.UpWithoutBFD() != c.Up() {
			t.Errorf("%+v: the reason is %q, want %q in it; an established session must count as up without BFD", c.Session, got, c.want)
		}
	}
	for _, s := range []bgp.Session{{State: bgp.Established}, {State: bgp.Established, BFD: "Up"}} {
		if s.UpWithoutBFD() {
			t.Errorf("%+v counts as up without BFD", s)
		}
	}
}
