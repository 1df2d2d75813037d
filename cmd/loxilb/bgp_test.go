package main

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/announce/speaker"
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

// TestDeletedNeighbor checks that the deletion of a neighbor ends its session, and that a node
// without neighbors is not isolated.
func TestDeletedNeighbor(t *testing.T) {
	t.Parallel()
	b := newBGPSessions(slog.New(slog.DiscardHandler), event.NewHub(), func(string) bool { return false })
	var got []bool
	b.changed = func(isolated bool) { got = append(got, isolated) }
	session := func(key, state string) speaker.Session { return speaker.Session{Key: key, State: state} }
	one, two, idle := session("10.0.0.1", bgp.Established), session("10.0.0.2", bgp.Established), session("10.0.0.3", "Idle")
	for _, c := range []struct {
		list []speaker.Session
		want []bool // calls of changed
	}{
		{[]speaker.Session{one, two, idle}, []bool{false}},
		{[]speaker.Session{one, two, idle}, nil},
		{[]speaker.Session{one, idle}, []bool{false}},
		{[]speaker.Session{idle}, []bool{true}},
		{[]speaker.Session{idle}, nil},
		{nil, []bool{false}},
		{nil, nil},
	} {
		got = nil
		if b.update(c.list); !slices.Equal(got, c.want) {
			t.Errorf("%v: changed was called with %v, want %v", c.list, got, c.want)
		}
	}
}
