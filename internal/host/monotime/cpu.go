package monotime

import (
	"time"

	"golang.org/x/sys/unix"
)

// ThreadCPU returns the CPU time that the calling thread has used so far, in user space and in the
// kernel. Differences need runtime.LockOSThread.
func ThreadCPU() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
