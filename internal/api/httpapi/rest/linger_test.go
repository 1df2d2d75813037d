package rest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/api/httpapi/rest"
)

// TestLinger checks that a request goes on for ten seconds after its client's data has ended, not
// longer, and that its own end leaves nothing behind.
func TestLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, closes := context.WithCancel(t.Context())
		ctx, end := rest.Linger(client)
		defer end()
		closes()
		time.Sleep(9 * time.Second)
		if err := ctx.Err(); err != nil {
			t.Errorf("after 9 s: %v, want that the request goes on", err)
		}
		time.Sleep(2 * time.Second)
		if ctx.Err() == nil {
			t.Error("after 11 s the request goes on")
		}
		client, closes = context.WithCancel(t.Context())
		ctx, end = rest.Linger(client)
		closes()
		end()
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("a request that has ended goes on")
		}
	})
}
