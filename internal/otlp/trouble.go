package otlp

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// trouble is whether one kind of export fails. It is said when that begins, and when it is over.
type trouble struct {
	what string
	log  *slog.Logger

	mu    sync.Mutex
	since time.Time
	err   error
}

func (t *trouble) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && t.err == nil:
		t.since = time.Now()
		t.log.Warn("OpenTelemetry has no answer that is one", "what", t.what, "error", err)
	case err == nil && t.err != nil:
		t.log.Info("OpenTelemetry answers again", "what", t.what, "after", time.Since(t.since).Round(time.Second))
	}
	t.err = err
}

func (t *trouble) last() (since time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		return time.Time{}, nil
	}
	return t.since, fmt.Errorf("%s cannot be exported: %w", t.what, t.err)
}
