package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"loxilb/internal/announce/speaker"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/event"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
)

// bgpSessionKind is the kind of the statuses of BGP sessions.
const bgpSessionKind = "bgpsession"

// bgpGrace is the time in which a session must be established before it counts as down.
const bgpGrace = 15 * time.Second

// bgpSessions follows the sessions of the speaker: it counts flaps and publishes events.
type bgpSessions struct {
	speaker *speaker.Speaker
	hub     *event.Hub
	started time.Time
	hasRole func(neighbor string) bool // reports whether a BFD session for roles has the address
	paused  func() bool                // reports whether the node is drained
	changed func(isolated bool)        // called when a session begins or ends; isolated: no neighbor has a session

	mu       sync.Mutex
	last     map[string]bgp.Session // by neighbor
	isolated bool                   // argument of the last call of changed
}

func newBGPSessions(log *slog.Logger, hub *event.Hub, hasRole func(string) bool) *bgpSessions {
	return &bgpSessions{speaker: speaker.New(log), hub: hub, started: time.Now(), hasRole: hasRole, paused: func() bool { return false }, changed: func(bool) {}, last: map[string]bgp.Session{}}
}

// run refreshes the sessions when they change, until ctx ends.
func (b *bgpSessions) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.speaker.Changed():
			b.refresh()
		}
	}
}

// refresh reads the sessions with all neighbors, counts flaps and publishes events.
func (b *bgpSessions) refresh() []bgp.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.update(b.speaker.Sessions())
}

// update stores the speaker's current sessions. The caller must hold mu.
func (b *bgpSessions) update(list []speaker.Session) []bgp.Session {
	paused := b.paused()
	out := make([]bgp.Session, len(list))
	known := make(map[string]bgp.Session, len(list))
	up, changed := 0, false
	for i, s := range list {
		out[i] = bgp.Session{
			Neighbor: s.Key, State: s.State, Since: s.Since, LastError: s.LastError, Sent: s.Sent, Received: s.Received, BFD: s.BFD,
		}
		if paused && !out[i].Up() {
			out[i].LastError = "the node is drained until: loxicmd node resume"
		}
		changed = b.follow(&out[i]) || changed
		if out[i].Up() {
			up++
		}
		known[s.Key] = out[i]
	}
	for key, s := range b.last {
		_, stays := known[key]
		changed = changed || !stays && s.Up() // the neighbor was deleted
	}
	b.last = known
	isolated := up == 0 && len(list) > 0
	if changed || b.isolated && !isolated {
		b.isolated = isolated
		b.changed(isolated)
	}
	return out
}

// follow compares a session with its previous state, and reports whether it began or ended.
func (b *bgpSessions) follow(s *bgp.Session) bool {
	before := b.last[s.Neighbor]
	s.Flaps = before.Flaps
	ended := before.Up() && (!s.Up() || !s.Since.Equal(before.Since))
	began := s.Up() && (ended || !before.Up())
	e := event.Object{ObjectKind: kinds.BGPNeighborName, Key: s.Neighbor}
	if ended {
		s.Flaps++
		e.Action, e.Error = event.Failed, "the session is down"
		if s.LastError != "" {
			e.Error += ": " + s.LastError
		}
		b.hub.Publish(e)
	}
	if began {
		e.Action, e.Error = event.Solved, "the session is established"
		b.hub.Publish(e)
	}
	return began || ended
}

// failing returns the sessions that have been down, or without their configured BFD, for longer
// than bgpGrace. Sessions of a drained node are down on purpose, and do not fail.
func (b *bgpSessions) failing() (list []bgp.Session) {
	if b.paused() {
		return nil
	}
	for _, s := range b.refresh() {
		since := s.Since
		if since.IsZero() {
			since = b.started
		}
		if (!s.Up() || s.UpWithoutBFD()) && time.Since(since) > bgpGrace {
			list = append(list, s)
		}
	}
	return list
}

// why returns the problem of a session, as a sentence.
func (b *bgpSessions) why(s *bgp.Session) string {
	switch {
	case s.UpWithoutBFD() && b.hasRole(s.Neighbor):
		return "BFD does not run, so a silent neighbor is noticed late: the BFD session for roles (loxicmd get bfd) gets the packets of this address"
	case s.UpWithoutBFD():
		return "BFD is " + s.BFD + ", so a silent neighbor is noticed late: enable BFD there, and let firewalls pass UDP port 3784"
	case s.LastError == "":
		return "the session is down (" + s.State + ")"
	}
	return fmt.Sprintf("the session is down (%s): %s", s.State, s.LastError)
}

// statuses returns a failed status for each session that fails.
func (b *bgpSessions) statuses() (list []status.Status) {
	for _, s := range b.failing() {
		since := s.Since
		if since.IsZero() {
			since = b.started
		}
		list = append(list, status.Status{
			ID: status.ID{Kind: bgpSessionKind, Key: s.Neighbor}, Desired: 1, Since: since, Err: fmt.Errorf("%s", b.why(&s)), Attempts: 1,
		})
	}
	return list
}

// problems returns a finding of doctor for each session that fails.
func (b *bgpSessions) problems() (list []doctor.BGPSession) {
	for _, s := range b.failing() {
		list = append(list, doctor.BGPSession{Neighbor: s.Neighbor, Why: b.why(&s), Up: s.Up()})
	}
	return list
}

// newBGP makes the reconciliation loops of BGP objects.
func (p *daemon) newBGP(o reconcile.Observers) *reconcile.BGP {
	if p.sessions == nil {
		return reconcile.NewBGP(p.state, nil, o)
	}
	drained := p.state.Maintenance.OfThisNode(p.state.Snapshot()).Stage() == lb.Drained
	p.pausable = reconcile.NewPausableSpeaker(p.sessions.speaker, drained)
	p.sessions.paused = p.pausable.Paused
	return reconcile.NewBGP(p.state, p.pausable, o)
}

// bgpNow returns a function that lists the sessions with all neighbors, or nil if BGP is off.
func (p *daemon) bgpNow() func() []bgp.Session {
	if p.sessions == nil {
		return nil
	}
	return p.sessions.refresh
}
