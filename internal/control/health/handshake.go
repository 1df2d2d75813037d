package health

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"loxilb/internal/control/health/probe"
)

// Handshake connects to an endpoint, and keeps the connection open for the time hold. It ends
// within timeout. It returns why that failed; "": it has succeeded. undecided reports that the
// failure is no evidence about the endpoint, as this machine caused it.
func Handshake(ctx context.Context, at netip.AddrPort, timeout, hold time.Duration) (failure string, undecided bool) {
	err := probe.Handshake(ctx, at, timeout, hold)
	if err == nil {
		return "", false
	}
	return sanitize(err.Error()), ctx.Err() != nil || errors.Is(err, probe.ErrNotSent)
}

// MaxHandshakes returns how many calls of Handshake may run at a time. Each uses up to two file
// descriptors, and all together an eighth of the process's limit.
func MaxHandshakes() int { return min(1024, descriptors()/16) }
