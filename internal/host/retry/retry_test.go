package retry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestLoop(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := New("something is done", slog.New(slog.NewTextHandler(&out, nil)))
	if since, err := l.LastError(); err != nil || !since.IsZero() {
		t.Errorf("before anything happened: %v since %v", err, since)
	}
	l.Worked()
	if out.Len() != 0 {
		t.Errorf("an operation that never failed is reported as recovered: %s", &out)
	}
	var waited time.Duration
	for range 20 {
		wait := l.Failed(errors.New("broken"))
		if wait <= 0 || wait > 2*maxWait {
			t.Errorf("waits %v", wait)
		}
		waited += wait
	}
	if waited < 5*maxWait {
		t.Errorf("20 tries take %v: the wait does not grow", waited)
	}
	since, err := l.LastError()
	if err == nil || err.Error() != "broken" || time.Since(since) > time.Minute {
		t.Errorf("failed: %v since %v", err, since)
	}
	l.Failed(errors.New("broken otherwise"))
	if again, _ := l.LastError(); again != since {
		t.Error("another error restarts the time since when it fails")
	}
	l.Worked()
	if _, err := l.LastError(); err != nil {
		t.Error(err)
	}
	if wait := l.Failed(errors.New("broken")); wait > 2*minWait {
		t.Errorf("the first failure after a success waits %v", wait)
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d lines, want one for each new failure and one for the success:\n%s", n, &out)
	}
}
