package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	// idleTime is how long services must be without packets before a node counts as drained:
	// longer than routers take to change their routes, and than clients wait before they
	// retransmit.
	idleTime = 2 * time.Second
	// handoverTime is used instead of idleTime while this node is MASTER of an instance:
	// keepalived, or whatever sets roles, needs time to notice that the node is not ready and
	// to elect another one.
	handoverTime = 10 * time.Second
	// countInterval is the interval of counting packets. countRest bounds the share of time for
	// that: the pause before the next count is at least this many times as long as the last one
	// took.
	countInterval, countRest = 250 * time.Millisecond, 10
	// withdrawTime is how long sessions stay up for withdrawals before they end.
	withdrawTime = time.Second
	// drainedRetry is the wait before a refused change of the store is tried again.
	drainedRetry = time.Second
)

// Sessions are the BGP sessions of this node.
type Sessions interface {
	Pause(ctx context.Context, reason string) error // ends them until Resume
	Resume(ctx context.Context) error
}

// MaintenanceConfig has the dependencies of Maintenance.
type MaintenanceConfig struct {
	Observers
	Desired  *desired.State
	Owner    string                               // under which the object is stored
	Traffic  func() (packets, connections uint64) // of all services
	Sessions Sessions                             // nil: BGP is off
	Applied  func() lb.Stage                      // the stage that BGP neighbors know
	Decline  func(bool)                           // true: hand roles over to peers of elections
	Exit     func()                               // ends the daemon
}

// Maintenance takes this node out of service, and puts it back.
type Maintenance struct {
	*objectLoop[lb.Maintenance]
	config MaintenanceConfig
	drains chan struct{} // capacity 1: signals the start of a drain

	mu       sync.Mutex
	progress report.DrainProgress

	stage lb.Stage // used by Apply only
}

// NewMaintenance returns the loop of the object.
func NewMaintenance(c MaintenanceConfig) *Maintenance {
	m := &Maintenance{config: c, drains: make(chan struct{}, 1)}
	m.objectLoop = newObjectLoop(m, c.Desired, c.Desired.Maintenance.Table, c.Observers)
	return m
}

// Stage returns the stage that users want.
func (m *Maintenance) Stage() lb.Stage {
	return m.desired.Maintenance.OfThisNode(m.desired.Snapshot()).Stage()
}

// Progress returns the progress of the drain.
func (m *Maintenance) Progress() report.DrainProgress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress
}

// Run follows the object until ctx ends.
func (m *Maintenance) Run(ctx context.Context) {
	var helper sync.WaitGroup
	defer helper.Wait()
	helper.Go(func() { m.handleDrains(ctx) })
	m.objectLoop.Run(ctx)
}

// Apply starts or ends a drain, or puts the node into service again.
func (m *Maintenance) Apply(ctx context.Context, keys []string) []Outcome[string] {
	snapshot := m.desired.Snapshot()
	one := m.desired.Maintenance.OfThisNode(snapshot)
	err := m.enter(ctx, m.stage, one)
	if err == nil {
		m.stage = one.Stage()
	}
	return m.applyEach(snapshot, keys, func(lb.Maintenance, bool, string) error { return err })
}

// enter enters a stage. Other loops make routes, roles and readiness follow the object.
func (m *Maintenance) enter(ctx context.Context, before lb.Stage, one *lb.Maintenance) error {
	stage := one.Stage()
	m.config.Decline(stage != lb.InService)
	switch stage {
	case lb.Draining:
		if before == lb.Drained {
			if err := m.resume(ctx); err != nil {
				return err
			}
		}
		select {
		case m.drains <- struct{}{}:
		default:
		}
	case lb.Drained:
		if before == stage {
			return nil
		}
		if err := m.pause(ctx); err != nil {
			return err
		}
	case lb.InService:
		if before == lb.Drained {
			if err := m.resume(ctx); err != nil {
				return err
			}
		}
	}
	m.publish(before, one)
	if stage == lb.Drained && before == lb.Draining && one.Exit { // not at the start of a drained node
		m.Log.Info("the node is drained; the daemon exits as requested", "hint", "it stays drained until: loxicmd node resume")
		m.config.Exit()
	}
	return nil
}

// publish reports a new stage.
func (m *Maintenance) publish(before lb.Stage, one *lb.Maintenance) {
	stage := one.Stage()
	if before == stage || before == "" && stage == lb.InService {
		return
	}
	e := event.Node{Action: event.Ended, What: "the node is in service again"}
	switch stage {
	case lb.Draining:
		e = event.Node{Action: event.Began, What: "the node drains: " + deadlineText(one)}
	case lb.Drained:
		e = event.Node{Action: event.Changed, What: "the node is drained: its VIPs are withdrawn until loxicmd node resume"}
	}
	m.Events.Publish(e)
	m.Log.Info("maintenance of this node", "stage", stage, "what", e.What)
}

func deadlineText(one *lb.Maintenance) string {
	if one.Deadline.IsZero() {
		return "it waits until packets cease"
	}
	return "it waits until packets cease, or until " + one.Deadline.Local().Format(time.RFC3339)
}

// pause ends the sessions once routes are withdrawn, or after withdrawTime.
func (m *Maintenance) pause(ctx context.Context) error {
	if m.config.Sessions == nil {
		return nil
	}
	for end := time.Now().Add(withdrawTime); m.config.Applied() != lb.Drained && time.Now().Before(end); {
		if !monotime.Sleep(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	if err := m.config.Sessions.Pause(ctx, "maintenance"); err != nil {
		return fmt.Errorf("end BGP sessions: %w", err)
	}
	return nil
}

func (m *Maintenance) resume(ctx context.Context) error {
	if m.config.Sessions == nil {
		return nil
	}
	if err := m.config.Sessions.Resume(ctx); err != nil {
		return fmt.Errorf("start BGP sessions: %w", err)
	}
	return nil
}

// handleDrains handles drains until ctx ends.
func (m *Maintenance) handleDrains(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.drains:
			m.drain(ctx)
		}
	}
}

// drain waits until packets have ceased or the deadline has passed, and stores that the node is
// drained. It returns early if the node is put into service, even if another drain has begun since:
// routers and clients need the whole time again.
func (m *Maintenance) drain(ctx context.Context) {
	this := m.desired.Maintenance.OfThisNode(m.desired.Snapshot())
	if this.Stage() != lb.Draining {
		return
	}
	began := time.Now()
	packets, connections := m.config.Traffic()
	last, quiet := began, began // time of the last count, and of the last packets
	m.setProgress(report.DrainProgress{Connections: connections})
	wait := countInterval
	for monotime.Sleep(ctx, wait) {
		one := m.desired.Maintenance.OfThisNode(m.desired.Snapshot())
		if one.Stage() != lb.Draining || !one.Since.Equal(this.Since) {
			return
		}
		counted := time.Now()
		before := packets
		packets, connections = m.config.Traffic()
		wait = max(countInterval, countRest*time.Since(counted))
		if packets != before {
			quiet = counted
		}
		m.setProgress(report.DrainProgress{
			Connections: connections, PacketRate: float64(packets-min(before, packets)) / counted.Sub(last).Seconds(), Idle: counted.Sub(quiet),
		})
		last = counted
		expired := !one.Deadline.IsZero() && !counted.Before(one.Deadline)
		if counted.Sub(quiet) < m.neededIdle() && !expired {
			continue
		}
		if m.storeDrained(this.Since) {
			if left := m.masterInstances(); len(left) > 0 {
				m.Log.Warn("no other node took over while this one drained", "instance", strings.Join(left, ", "))
			}
			return
		}
		wait = drainedRetry
	}
}

// neededIdle returns how long services must be without packets before the node counts as drained.
func (m *Maintenance) neededIdle() time.Duration {
	if len(m.masterInstances()) > 0 {
		return handoverTime
	}
	return idleTime
}

// masterInstances returns the instances of which this node is MASTER, in order.
func (m *Maintenance) masterInstances() (list []string) {
	for key, one := range m.desired.Instances.Assigned(m.desired.Snapshot()) {
		if one.Role == lb.RoleMaster {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

func (m *Maintenance) setProgress(p report.DrainProgress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress = p
}

// storeDrained stores that the node is drained, unless that drain is over. It returns false if it
// must be retried.
func (m *Maintenance) storeDrained(began time.Time) bool {
	options := store.CommitOptions{Owner: m.config.Owner, Author: store.Author{Who: "loxilb", Doing: "node drained"}}
	_, _, err := m.desired.CommitBy(options, func(tx *store.Tx) error {
		one := m.desired.Maintenance.OfThisNode(tx)
		if one.Stage() != lb.Draining || !one.Since.Equal(began) {
			return nil
		}
		one.Drained = true
		return m.desired.Maintenance.Put(tx, *one)
	})
	if err != nil {
		m.Log.Error("the node is drained, and this cannot be stored; trying again", "error", err)
	}
	return err == nil
}
