package copies

import (
	"context"
	"log/slog"
	"time"
)

// roomPause is the pause after the table could not grow: an attempt may take a second.
const roomPause = 5 * time.Second

// room makes room for copies. If that fails, copies that fit are still inserted: an error would end
// the connection to the node, which would then send all copies again.
type room struct {
	grow   func(ctx context.Context, connections int) error
	log    *slog.Logger
	failed time.Time
}

// ensure makes room. It fails only if ctx has ended.
func (r *room) ensure(ctx context.Context, connections int) error {
	if !r.failed.IsZero() && time.Since(r.failed) < roomPause {
		return ctx.Err()
	}
	err := r.grow(ctx, connections)
	if err != nil && ctx.Err() == nil {
		r.failed = time.Now()
		r.log.Warn("there may be no room for connections of other nodes", "error", err)
	}
	return ctx.Err()
}
