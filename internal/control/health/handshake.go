package health

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"loxilb/internal/control/health/probe"
)

// Handshake connects to an endpoint, and holds the connection for a while, at most timeout all in
// all. It says what was wrong, "" if nothing; undecided, if that is this machine's fault.
func Handshake(ctx context.Context, at netip.AddrPort, timeout, hold time.Duration) (failure string, undecided bool) {
	err := probe.Handshake(ctx, at, timeout, hold)
	if err == nil {
		return "", false
	}
	return clause(err.Error()), ctx.Err() != nil || errors.Is(err, probe.ErrNotAsked)
}

// MostHandshakes is how many Handshakes may run at a time. Each has two descriptors, and all of
// them an eighth of those that there may be.
func MostHandshakes() int { return min(1024, descriptors()/16) }
