package health

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"loxilb/internal/control/health/probe"
)

// Handshake connects to an endpoint, and holds the connection for a while, at most timeout in
// total. It returns the failure, "" if there was none; undecided: this machine is to blame.
func Handshake(ctx context.Context, at netip.AddrPort, timeout, hold time.Duration) (failure string, undecided bool) {
	err := probe.Handshake(ctx, at, timeout, hold)
	if err == nil {
		return "", false
	}
	return clause(err.Error()), ctx.Err() != nil || errors.Is(err, probe.ErrNotSent)
}

// MaxHandshakes returns how many Handshakes may run at a time. Each has two descriptors, and
// together they may use an eighth of the process's limit.
func MaxHandshakes() int { return min(1024, descriptors()/16) }
