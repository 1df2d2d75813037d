package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"loxilb/internal/control/status"
	"loxilb/internal/event"
)

// Drops are watched for watchedFor after programs of another version were replaced. Drops "jump" if
// more than jumpLeast packets were dropped for one reason, at jumpTimes the former rate. If drops
// continue at that rate for jumpProof after the former programs are back, the new programs did not
// cause them.
const (
	exchangePeriod = 100 * time.Millisecond
	watchedFor     = 10 * time.Second
	jumpLeast      = 100
	jumpTimes      = 10
	jumpProof      = 3 * time.Second
)

// exchanger is the part of the data path that exchangeWatch needs.
type exchanger interface {
	Drops() (map[string]uint64, error)
	DropsBefore() (at time.Time, drops map[string]uint64)
	Exchanged() bool
	RollBack() error
	FollowFormer() error
	RollForward() error
	KeepPrograms() error
}

// exchangeWatch restores the previous version's programs if drops jump after this version's
// replaced them. It does so once, and reports why.
type exchangeWatch struct {
	datapath exchanger
	version  string
	hub      *event.Hub
	log      *slog.Logger

	exchanged counted // before this version's programs began
	before    map[string]float64
	jump      *jump   // nil: there was none
	back      counted // when the former programs came back

	mu     sync.Mutex
	reason error // why the former programs are back; nil: they are not
	since  time.Time
}

// counted is the number of packets dropped by a time, by reason.
type counted struct {
	at    time.Time
	drops map[string]uint64
}

// jump is a sudden rise of drops for one reason.
type jump struct {
	reason  string
	packets uint64
	took    time.Duration
	before  float64 // packets per second
}

// rate returns the rate of drops per second.
func (j *jump) rate() float64 { return float64(j.packets) / j.took.Seconds() }

func (j *jump) String() string {
	return fmt.Sprintf("%d packets were dropped within %v, reason %s, and %.0f a second before", j.packets, j.took.Round(time.Millisecond), j.reason, j.before)
}

// begin records the drops of the previous version's programs. Call it before they are replaced.
func (w *exchangeWatch) begin(now time.Time) error {
	drops, err := w.datapath.Drops()
	if err != nil {
		return err
	}
	began, first := w.datapath.DropsBefore()
	w.exchanged, w.before = counted{now, drops}, map[string]float64{}
	for reason, n := range drops {
		w.before[reason] = float64(n-first[reason]) / max(now.Sub(began), exchangePeriod).Seconds()
	}
	return nil
}

// run watches until ctx ends, or no former programs are left to restore.
func (w *exchangeWatch) run(ctx context.Context) {
	if !w.datapath.Exchanged() || w.exchanged.drops == nil {
		return
	}
	w.log.Info("the programs of another version were replaced; they stay for a while, and come back if drops jump", "watched_for", watchedFor)
	tick := time.NewTicker(exchangePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			done, err := w.check(now)
			if err != nil {
				w.log.Error("programs that were replaced", "error", err)
			}
			if done {
				return
			}
		}
	}
}

// check does the step that is due.
func (w *exchangeWatch) check(now time.Time) (done bool, err error) {
	if w.jump != nil {
		return w.checkFormer(now)
	}
	if now.Sub(w.exchanged.at) > watchedFor {
		w.log.Info("the programs of this version stay: drops have not jumped")
		return true, w.datapath.KeepPrograms()
	}
	drops, err := w.datapath.Drops()
	if err != nil {
		return false, err
	}
	if w.jump = w.find(counted{now, drops}); w.jump == nil {
		return false, nil
	}
	w.back = counted{now, drops}
	if err := w.datapath.RollBack(); err != nil {
		return true, fmt.Errorf("restore the former programs, as %v: %w", w.jump, err)
	}
	w.report(now, event.Failed, fmt.Errorf("%v: so the programs of the version before loxilb %s are back, and stay until the next start", w.jump, w.version))
	return false, nil
}

// find looks for a reason whose drops have jumped.
func (w *exchangeWatch) find(now counted) *jump {
	took := now.at.Sub(w.exchanged.at)
	var most *jump
	for reason, n := range now.drops {
		j := &jump{reason, n - w.exchanged.drops[reason], took, w.before[reason]}
		if float64(j.packets) > jumpLeast+jumpTimes*j.before*took.Seconds() && (most == nil || j.packets > most.packets) {
			most = j
		}
	}
	return most
}

// checkFormer maintains the former programs, and removes them if they drop as much as the new ones.
func (w *exchangeWatch) checkFormer(now time.Time) (done bool, err error) {
	if err := w.datapath.FollowFormer(); err != nil || w.back.at.IsZero() || now.Sub(w.back.at) < jumpProof {
		return false, err
	}
	drops, err := w.datapath.Drops()
	if err != nil {
		return false, err
	}
	since := &jump{w.jump.reason, drops[w.jump.reason] - w.back.drops[w.jump.reason], now.Sub(w.back.at), w.jump.before}
	w.back = counted{}
	if 2*since.rate() < w.jump.rate() {
		return false, nil
	}
	if err := w.datapath.RollForward(); err != nil {
		return true, err
	}
	w.report(now, event.Solved, nil)
	w.log.Info("the programs of this version are back: the former programs drop as many packets", "packets", since.packets, "reason", since.reason)
	return true, nil
}

// programsID identifies the programs in statuses and events.
func programsID() status.ID { return status.ID{Kind: "programs", Key: "exchange"} }

// report publishes and logs that the former programs are back, with the reason, or that they are no
// longer.
func (w *exchangeWatch) report(now time.Time, what event.Action, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := why
	if why == nil {
		text = w.reason
	} else {
		w.log.Error("the programs of the version before are back", "reason", why)
	}
	w.reason, w.since = why, now
	w.hub.Publish(event.Object{ObjectKind: programsID().Kind, Key: programsID().Key, Version: 1, Action: what, Error: text.Error()})
}

// statuses returns a failed status with the reason while the former programs are back.
func (w *exchangeWatch) statuses() []status.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason == nil {
		return nil
	}
	return []status.Status{{ID: programsID(), Desired: 1, Since: w.since, Attempts: 1, Err: w.reason}}
}
