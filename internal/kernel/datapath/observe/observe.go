// Package observe reads the reports of the packet path (bpf/observe): drops, connection events,
// copies of packets for recordings and traces, and how full the connection table is.
//
// Each reader polls its ring buffer. The packet path wakes no reader, so reports cost an
// established packet nothing.
package observe

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the wall clock time at which CLOCK_MONOTONIC was 0.
func bootTime() time.Time {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(now.Nano()))
}
