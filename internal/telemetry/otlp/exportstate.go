package otlp

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

// exportState tracks whether one kind of export fails. It logs the first failure and the first
// success after it.
type exportState struct {
	what string
	log  *slog.Logger

	mu    sync.Mutex
	since time.Time
	err   error
}

// maxText bounds an error's bytes: the library includes the collector's whole answer.
const maxText = 300

// oneLine returns an error that is one printable line.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, err.Error()[:min(len(err.Error()), maxText)])
	if len(err.Error()) > maxText {
		text += " ..."
	}
	return errors.New(text)
}

func (t *exportState) record(err error) {
	err = oneLine(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && t.err == nil:
		t.since = time.Now()
		t.log.Warn("OpenTelemetry collector gives no valid answer", "what", t.what, "error", err)
	case err == nil && t.err != nil:
		t.log.Info("OpenTelemetry answers again", "what", t.what, "after", time.Since(t.since).Round(time.Second))
	}
	t.err = err
}

func (t *exportState) current() (since time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		return time.Time{}, nil
	}
	return t.since, fmt.Errorf("%s cannot be exported: %w", t.what, t.err)
}
