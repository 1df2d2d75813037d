package netdev

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"loxilb/internal/host/monotime"
)

const (
	// doctorEvery and doctorGap are the longest and the shortest interval between checks. A change
	// causes a check, but a check walks over all VIPs and endpoints.
	doctorEvery = 10 * time.Second
	doctorGap   = time.Second
	// ProblemsShown is the maximum number of reported problems of one sort.
	ProblemsShown = 8
)

// Problem is a condition outside of the load balancer that prevents a service from working. It is
// the error of the affected object.
type Problem struct {
	Kind, Key string // the affected object, as in statuses: "endpoint", "31.31.31.1"
	What      string // the problem
	Hint      string // the remedy
}

// KnownProblem is a current problem, and the time of its first report.
type KnownProblem struct {
	Problem
	Since time.Time
}

func (p Problem) Error() string { return p.What + " (" + p.Hint + ")" }

// Doctor looks for problems, and logs them when they appear and when they are gone.
type Doctor struct {
	look func(ctx context.Context, periodic bool) []Problem
	log  *slog.Logger
	soon chan struct{} // capacity 1

	mu    sync.Mutex
	known []KnownProblem // current problems, in the order of look
}

// newDoctor makes a doctor. look returns the current problems; periodic is true for the periodic
// checks, every 10 s.
func newDoctor(look func(ctx context.Context, periodic bool) []Problem, log *slog.Logger) *Doctor {
	return &Doctor{look: look, log: log, soon: make(chan struct{}, 1)}
}

// RequestCheck requests a check after a change. It does not wait for the check.
func (d *Doctor) RequestCheck() {
	select {
	case d.soon <- struct{}{}:
	default:
	}
}

// Problems returns the problems of the last check: each sort in order, the number of the others
// last.
func (d *Doctor) Problems() []KnownProblem {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.known)
}

// Run looks for problems until ctx ends, and reports each that appears or disappears.
func (d *Doctor) Run(ctx context.Context, notify func(p Problem, gone bool)) {
	periodic := time.NewTicker(doctorEvery) // a timer per check would never fire while a neighbour changes constantly
	defer periodic.Stop()
	for {
		isPeriodic := false
		select {
		case <-ctx.Done():
			return
		case <-d.soon:
		case <-periodic.C:
			isPeriodic = true
		}
		appeared, gone := d.compare(d.look(ctx, isPeriodic))
		for _, p := range appeared {
			d.log.Warn("problem", "what", p.What, "hint", p.Hint)
			notify(p, false)
		}
		for _, p := range gone {
			d.log.Info("problem is gone", "what", p.What)
			notify(p, true)
		}
		if !monotime.Sleep(ctx, doctorGap) {
			return
		}
	}
}

// compare stores the current problems, and returns the new and the solved ones.
func (d *Doctor) compare(now []Problem) (appeared, gone []Problem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	began := make(map[Problem]time.Time, len(d.known))
	for _, k := range d.known {
		began[k.Problem] = k.Since
	}
	next, seen := make([]KnownProblem, 0, len(now)), make(map[Problem]bool, len(now))
	for _, p := range now {
		if seen[p] {
			continue
		}
		seen[p] = true
		since, had := began[p]
		if !had {
			appeared = append(appeared, p)
			since = time.Now()
		}
		next = append(next, KnownProblem{p, since})
	}
	for _, k := range d.known {
		if !seen[k.Problem] {
			gone = append(gone, k.Problem)
		}
	}
	slices.SortFunc(gone, func(a, b Problem) int { return cmp.Compare(a.What, b.What) })
	d.known = next
	return appeared, gone
}

// BoundedProblems sorts and truncates problems of one sort. kind is the kind of the affected
// objects, and sort describes the problems. total is their number; list has at least the first
// ProblemsShown.
func BoundedProblems(list []Problem, total int, kind, sort string) []Problem {
	slices.SortFunc(list, func(a, b Problem) int { return cmp.Compare(a.What, b.What) })
	if total <= ProblemsShown {
		return list
	}
	more := Problem{Kind: kind, Key: "others", What: fmt.Sprintf("%d more %s", total-ProblemsShown, sort), Hint: "first correct the named ones"}
	return append(list[:ProblemsShown:ProblemsShown], more)
}
