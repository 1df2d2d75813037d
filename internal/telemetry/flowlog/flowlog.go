// Package flowlog logs connections: their translation, their endpoints, and their traffic. Lines of
// JSON go to a file of bounded size, and IPFIX to a collector. Lost events are counted and
// reported.
package flowlog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"loxilb/internal/lb/report"
)

// Source reports connections.
type Source interface {
	WatchConnections(ctx context.Context, rate int, yield func([]report.ConnectionEvent, report.Omitted) bool) error
}

// Sink stores or sends events.
type Sink interface {
	// Write writes events, preceded by the number of unwritten ones so far, if that has
	// changed.
	Write(now time.Time, events []report.ConnectionEvent, lost uint64) error
	// Name returns the destination, for messages.
	Name() string
	Close() error
}

// retryDelay is the delay before a failed source is read again.
const retryDelay = time.Second

// Logger passes a source's events to sinks, each independently: a failing one does not stop others.
type Logger struct {
	source  Source
	rate    int
	log     *slog.Logger
	outlets []*outlet
	missed  uint64 // events, in all watches before this one
	busy    bool   // the source has refused
}

// outlet is a sink with its unwritten events.
type outlet struct {
	Sink
	lost    uint64 // events that could not be written
	failing bool
}

// New returns a logger of at most rate events per second.
func New(source Source, rate int, log *slog.Logger, sinks ...Sink) *Logger {
	l := &Logger{source: source, rate: rate, log: log}
	for _, s := range sinks {
		l.outlets = append(l.outlets, &outlet{Sink: s})
	}
	return l
}

// Run writes until ctx ends.
func (l *Logger) Run(ctx context.Context) {
	for ctx.Err() == nil {
		var last uint64
		err := l.source.WatchConnections(ctx, l.rate, func(events []report.ConnectionEvent, omitted report.Omitted) bool {
			last = omitted.Sampled + omitted.Lost
			l.busy = false
			l.write(time.Now(), events, l.missed+last)
			return true
		})
		l.missed += last
		if err != nil && !l.busy {
			l.log.Error("connections are not logged; trying again", "error", err)
			l.busy = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
	for _, o := range l.outlets {
		if err := o.Close(); err != nil && !errors.Is(err, context.Canceled) {
			l.log.Error("the connection log could not be closed", "to", o.Name(), "error", err)
		}
	}
}

// write hands events to all sinks.
func (l *Logger) write(now time.Time, events []report.ConnectionEvent, omitted uint64) {
	for _, o := range l.outlets {
		err := o.Write(now, events, omitted+o.lost)
		if err == nil {
			if o.failing && len(events) > 0 {
				l.log.Info("connections are logged again", "to", o.Name(), "lost", o.lost)
				o.failing = false
			}
			continue
		}
		o.lost += uint64(len(events))
		l.log.Error("connections are not logged", "to", o.Name(), "lost", o.lost, "error", err)
		o.failing = true
	}
}
