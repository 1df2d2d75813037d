// Package diagnosis says what is wrong in the network around the load balancer: one sentence of what keeps a service from
// working, and one of what to do.
package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

const (
	// every and gap bound how often problems are looked for: at once after a change, but never twice within the gap, as it
	// costs a walk over all VIPs and endpoints.
	every = 10 * time.Second
	gap   = time.Second
	// shown bounds the problems of one sort.
	shown = 8
)

// Problem is something outside the load balancer that keeps a service from working. It is an error of what it keeps from
// being done.
type Problem struct {
	What string // what is wrong
	Hint string // what to do
}

func (p Problem) Error() string { return p.What + " (" + p.Hint + ")" }

// Doctor looks for problems, and logs them when they appear and when they are gone.
type Doctor struct {
	look func(ctx context.Context, soon bool) []Problem
	log  *slog.Logger
	soon chan struct{} // capacity 1

	known map[Problem]struct{} // of Run alone
}

// New makes a doctor. look returns the present problems; soon is false when nothing happened and a while has passed.
func New(look func(ctx context.Context, soon bool) []Problem, log *slog.Logger) *Doctor {
	return &Doctor{look: look, log: log, soon: make(chan struct{}, 1), known: map[Problem]struct{}{}}
}

// Soon has the doctor look soon, as something has changed.
func (d *Doctor) Soon() {
	select {
	case d.soon <- struct{}{}:
	default:
	}
}

// Run looks for problems until ctx ends.
func (d *Doctor) Run(ctx context.Context) {
	for {
		soon := true
		select {
		case <-ctx.Done():
			return
		case <-d.soon:
		case <-time.After(every):
			soon = false
		}
		appeared, gone := d.compare(d.look(ctx, soon))
		for _, p := range appeared {
			d.log.Warn("problem", "what", p.What, "hint", p.Hint)
		}
		for _, p := range gone {
			d.log.Info("problem is gone", "what", p.What)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
	}
}

// compare takes the problems of now and returns those that are new and those that are no more, in order.
func (d *Doctor) compare(now []Problem) (appeared, gone []Problem) {
	next := map[Problem]struct{}{}
	for _, p := range now {
		if _, had := d.known[p]; !had {
			appeared = append(appeared, p)
		}
		next[p] = struct{}{}
	}
	for p := range d.known {
		if _, has := next[p]; !has {
			gone = append(gone, p)
		}
	}
	slices.SortFunc(gone, func(a, b Problem) int { return cmp.Compare(a.What, b.What) })
	d.known = next
	return appeared, gone
}

// Bounded sorts problems of one sort and cuts them short; sort names it.
func Bounded(list []Problem, sort string) []Problem {
	slices.SortFunc(list, func(a, b Problem) int { return cmp.Compare(a.What, b.What) })
	if len(list) <= shown {
		return list
	}
	more := Problem{What: fmt.Sprintf("%d more %s", len(list)-shown, sort), Hint: "mend those named first"}
	return append(list[:shown:shown], more)
}
