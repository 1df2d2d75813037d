package copies

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestRoom checks that copies are inserted although the table cannot grow, which is tried again
// after a pause.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts, failure := 0, errors.New("no memory")
		r := room{log: slog.New(slog.DiscardHandler), grow: func(context.Context, int) error {
			attempts++
			return failure
		}}
		want := func(n int) {
			t.Helper()
			if err := r.ensure(t.Context(), 256); err != nil || attempts != n {
				t.Errorf("after %d attempts: %v, want %d and no error", attempts, err, n)
			}
		}
		want(1)
		want(1)
		time.Sleep(roomPause)
		want(2)
		failure = nil
		time.Sleep(roomPause)
		want(3)
		want(4)
		ended, end := context.WithCancel(t.Context())
		end()
		if err := r.ensure(ended, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("after the context has ended: %v", err)
		}
	})
}
