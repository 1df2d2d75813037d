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

// exchangeWatch watches drops for watchTime after it replaced the programs of another version.
// Drops "jump" if more than minJumpPackets packets are dropped for one reason, at jumpFactor times
// the former rate. If drops continue at that rate for formerTrialTime after the former programs
// were restored, the new programs did not cause them.
const (
	exchangePeriod  = 100 * time.Millisecond
	watchTime       = 10 * time.Second
	minJumpPackets  = 100
	jumpFactor      = 10
	formerTrialTime = 3 * time.Second
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

	atExchange  dropCounts
	formerRates map[string]float64
	jump        *jump // nil: none
	atRestore   dropCounts

	mu     sync.Mutex
	reason error // why the former programs were restored; nil: they were not
	since  time.Time
}

// dropCounts are the numbers of packets dropped until a time, by reason.
type dropCounts struct {
	at    time.Time
	drops map[string]uint64
}

// jump is a sudden rise of drops for one reason.
type jump struct {
	reason     string
	packets    uint64
	took       time.Duration
	formerRate float64 // packets per second
}

// rate returns the rate of drops per second.
func (j *jump) rate() float64 { return float64(j.packets) / j.took.Seconds() }

func (j *jump) String() string {
	return fmt.Sprintf("%d packets were dropped within %v, reason %s (before: %.0f per second)", j.packets, j.took.Round(time.Millisecond), j.reason, j.formerRate)
}

// begin records the drops of the previous version's programs. Call it before they are replaced.
func (w *exchangeWatch) begin(now time.Time) error {
	drops, err := w.datapath.Drops()
	if err != nil {
		return err
	}
	began, first := w.datapath.DropsBefore()
	w.atExchange, w.formerRates = dropCounts{now, drops}, map[string]float64{}
	for reason, n := range drops {
		w.formerRates[reason] = float64(n-first[reason]) / max(now.Sub(began), exchangePeriod).Seconds()
	}
	return nil
}

// run watches until ctx ends, or no former programs are left to restore.
func (w *exchangeWatch) run(ctx context.Context) {
	if !w.datapath.Exchanged() || w.atExchange.drops == nil {
		return
	}
	w.log.Info("replaced the programs of another version; they are restored if drops jump", "watched_for", watchTime)
	tick := time.NewTicker(exchangePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			done, err := w.check(now)
			if err != nil {
				w.log.Error("replaced programs", "error", err)
			}
			if done {
				return
			}
		}
	}
}

// check looks for a jump, or for the end of the watch. It returns true when the watch is over.
func (w *exchangeWatch) check(now time.Time) (done bool, err error) {
	if w.jump != nil {
		return w.checkFormer(now)
	}
	if now.Sub(w.atExchange.at) > watchTime {
		w.log.Info("the programs of this version stay: drops did not jump")
		return true, w.datapath.KeepPrograms()
	}
	drops, err := w.datapath.Drops()
	if err != nil {
		return false, err
	}
	if w.jump = w.findJump(dropCounts{now, drops}); w.jump == nil {
		return false, nil
	}
	w.atRestore = dropCounts{now, drops}
	if err := w.datapath.RollBack(); err != nil {
		return true, fmt.Errorf("restore the former programs, as %v: %w", w.jump, err)
	}
	w.report(now, event.Failed, fmt.Errorf("%v: restored the programs that preceded loxilb %s, until the next start", w.jump, w.version))
	return false, nil
}

// findJump looks for a reason whose drops have jumped.
func (w *exchangeWatch) findJump(now dropCounts) *jump {
	took := now.at.Sub(w.atExchange.at)
	var most *jump
	for reason, n := range now.drops {
		j := &jump{reason, n - w.atExchange.drops[reason], took, w.formerRates[reason]}
		if float64(j.packets) > minJumpPackets+jumpFactor*j.formerRate*took.Seconds() && (most == nil || j.packets > most.packets) {
			most = j
		}
	}
	return most
}

// checkFormer maintains the former programs, and removes them if they drop as much as the new ones.
func (w *exchangeWatch) checkFormer(now time.Time) (done bool, err error) {
	if err := w.datapath.FollowFormer(); err != nil || w.atRestore.at.IsZero() || now.Sub(w.atRestore.at) < formerTrialTime {
		return false, err
	}
	drops, err := w.datapath.Drops()
	if err != nil {
		return false, err
	}
	since := &jump{w.jump.reason, drops[w.jump.reason] - w.atRestore.drops[w.jump.reason], now.Sub(w.atRestore.at), w.jump.formerRate}
	w.atRestore = dropCounts{}
	if 2*since.rate() < w.jump.rate() {
		return false, nil
	}
	if err := w.datapath.RollForward(); err != nil {
		return true, err
	}
	w.report(now, event.Solved, nil)
	w.log.Info("installed the programs of this version again: the former programs drop as many packets", "packets", since.packets, "reason", since.reason)
	return true, nil
}

// programsID identifies the programs in statuses and events.
func programsID() status.ID { return status.ID{Kind: "programs", Key: "exchange"} }

// report publishes and logs that the former programs were restored, and why, or that this version's
// are installed again.
func (w *exchangeWatch) report(now time.Time, what event.Action, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := why
	if why == nil {
		text = w.reason
	} else {
		w.log.Error("restored the programs of the previous version", "reason", why)
	}
	w.reason, w.since = why, now
	w.hub.Publish(event.Object{ObjectKind: programsID().Kind, Key: programsID().Key, Version: 1, Action: what, Error: text.Error()})
}

// statuses returns a failed status with the reason while the former programs are installed.
func (w *exchangeWatch) statuses() []status.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason == nil {
		return nil
	}
	return []status.Status{{ID: programsID(), Desired: 1, Since: w.since, Attempts: 1, Err: w.reason}}
}
