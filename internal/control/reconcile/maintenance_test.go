package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
)

// maintenanceRig runs Maintenance, and records its calls.
type maintenanceRig struct {
	*rig
	m       *Maintenance
	packets atomic.Uint64

	mu    sync.Mutex
	calls []string
}

func (b *maintenanceRig) record(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
}

func (b *maintenanceRig) wantRecorded(want ...string) {
	b.t.Helper()
	await.True(b.t, 10*time.Second, fmt.Sprint(want), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Equal(b.calls, want)
	})
}

func (b *maintenanceRig) Pause(_ context.Context, reason string) error {
	b.record("pause: %s", reason)
	return nil
}

func (b *maintenanceRig) Resume(context.Context) error { b.record("resume"); return nil }

func (b *maintenanceRig) put(one lb.Maintenance) {
	b.t.Helper()
	b.wait(b.commit(func(tx *store.Tx) error { return b.state.Maintenance.Put(tx, one) }))
}

func newMaintenanceRig(t *testing.T) *maintenanceRig {
	t.Helper()
	b := &maintenanceRig{rig: newStoppedRig(t, newFakeKernel())}
	b.m = NewMaintenance(MaintenanceConfig{
		Observers: b.services.Observers, Desired: b.state, Owner: "rest", Sessions: b, Applied: func() lb.Stage { return lb.Drained },
		Traffic: func() (packets, connections uint64) { return b.packets.Load(), 3 },
		Decline: func(on bool) { b.record("decline %t", on) }, Exit: func() { b.record("exit") },
	})
	runUntilEnd(t, b.m.Run)
	return b
}

// TestDrainUntilIdle checks that a node drains until packets cease, exits if requested, and is put
// into service again.
func TestDrainUntilIdle(t *testing.T) {
	t.Parallel()
	b := newMaintenanceRig(t)
	busy := time.Now().Add(idleTime + time.Second)
	stop := time.AfterFunc(0, func() {
		for time.Now().Before(busy) {
			b.packets.Add(10)
			time.Sleep(10 * time.Millisecond)
		}
	})
	defer stop.Stop()
	events := b.hub.Subscribe(event.KindNode)
	b.put(lb.Maintenance{Since: time.Now(), Exit: true})
	await.True(t, 10*time.Second, "progress", func() bool {
		p := b.m.Progress()
		return p.Connections == 3 && p.PacketRate > 100 && p.Idle < idleTime
	})
	b.wantRecorded("decline true", "decline true", "pause: maintenance", "exit")
	if time.Now().Before(busy) {
		t.Error("the node counts as drained while packets arrive")
	}
	if got := b.m.Stage(); got != lb.Drained {
		t.Errorf("got %v, want %v", got, lb.Drained)
	}
	b.endMaintenance()
	b.wantRecorded("decline true", "decline true", "pause: maintenance", "exit", "decline false", "resume")
	var acts []event.Action
	for e, _, more := events.Poll(); more; e, _, more = events.Poll() {
		acts = append(acts, e.Act())
	}
	if !slices.Equal(acts, []event.Action{event.Began, event.Changed, event.Ended}) {
		t.Errorf("events: %v", acts)
	}
}

func (b *maintenanceRig) endMaintenance() {
	b.t.Helper()
	b.wait(b.commit(func(tx *store.Tx) error { return tx.Delete(b.state.Maintenance.ID("node")) }))
}

// TestDrainDeadline checks that a node is drained at the deadline although packets arrive, and that
// a drained node does not exit when its daemon starts.
func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	b := newMaintenanceRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			b.packets.Add(10)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	began := time.Now()
	b.put(lb.Maintenance{Since: began, Deadline: began.Add(time.Second)})
	b.wantRecorded("decline true", "decline true", "pause: maintenance")
	if took := time.Since(began); took < time.Second {
		t.Errorf("the node counts as drained after %v", took)
	}
	b.put(lb.Maintenance{Since: began, Deadline: began.Add(time.Second), Exit: true, Drained: true})
	b.endMaintenance()
	b.wantRecorded("decline true", "decline true", "pause: maintenance", "decline true", "decline false", "resume")
}

// TestDrainAgain checks that a drain takes its whole time if it follows another one at once, as the
// requests of two clients may.
func TestDrainAgain(t *testing.T) {
	t.Parallel()
	b := newMaintenanceRig(t)
	b.put(lb.Maintenance{Since: time.Now()})
	await.True(t, 10*time.Second, "almost idle", func() bool { return b.m.Progress().Idle > idleTime/2 })
	again := time.Now()
	b.commit(func(tx *store.Tx) error { return tx.Delete(b.state.Maintenance.ID("node")) })
	b.put(lb.Maintenance{Since: again})
	await.True(t, 10*time.Second, "drained", func() bool { return b.m.Stage() == lb.Drained })
	if took := time.Since(again); took < idleTime {
		t.Errorf("the node counts as drained %v after the second drain began", took)
	}
}

// TestDrainHandover checks that a MASTER without packets waits until another node takes over.
func TestDrainHandover(t *testing.T) {
	t.Parallel()
	b := newMaintenanceRig(t)
	role := func(role lb.Role) {
		b.commit(func(tx *store.Tx) error { return b.state.Instances.Put(tx, lb.Instance{Role: role}) })
	}
	role(lb.RoleMaster)
	b.put(lb.Maintenance{Since: time.Now()})
	await.True(t, 10*time.Second, "idle", func() bool { return b.m.Progress().Idle > idleTime+countInterval })
	if got := b.m.Stage(); got != lb.Draining {
		t.Errorf("the stage is %s, although no node has taken over", got)
	}
	role(lb.RoleBackup)
	await.True(t, handoverTime/2, "drained", func() bool { return b.m.Stage() == lb.Drained })
}

// speakerCalls records the calls of a speaker.
type speakerCalls struct {
	BGPSpeaker
	calls []string
}

func (s *speakerCalls) Start(_ context.Context, g bgp.Speaker) error {
	s.calls = append(s.calls, fmt.Sprintf("start %d", g.ASN))
	return nil
}

func (s *speakerCalls) Stop(_ context.Context, reason string) error {
	s.calls = append(s.calls, "stop: "+reason)
	return nil
}

// TestPausableSpeaker checks that a speaker starts with the configuration at the end of the pause.
func TestPausableSpeaker(t *testing.T) {
	t.Parallel()
	s := &speakerCalls{}
	p := NewPausableSpeaker(s, true)
	ctx := t.Context()
	for _, err := range []error{
		p.Start(ctx, bgp.Speaker{ASN: 1}), p.Start(ctx, bgp.Speaker{ASN: 2}), p.Resume(ctx), p.Pause(ctx, "maintenance"),
		p.Pause(ctx, "again"), p.Start(ctx, bgp.Speaker{ASN: 3}), p.Resume(ctx), p.Pause(ctx, "maintenance"), p.Stop(ctx, "off"), p.Resume(ctx),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if want := []string{"start 2", "stop: maintenance", "start 3", "stop: maintenance", "stop: off"}; !slices.Equal(s.calls, want) {
		t.Errorf("calls to the speaker are %q, want %q", s.calls, want)
	}
}
