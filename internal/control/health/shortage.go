package health

import (
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// shortageEnd is how long all probes must get a file descriptor until a shortage is over.
const shortageEnd = 10 * time.Second

// shortage logs the beginning and the end of a shortage of file descriptors, once each.
type shortage struct {
	log         *slog.Logger
	first, last time.Time // when probes got none; first is zero if there is no shortage
}

// record records that a probe did not get a descriptor.
func (s *shortage) record(now time.Time) {
	if !s.isReported() {
		s.first = now
		s.log.Warn("probes are delayed: too few file descriptors")
	}
	s.last = now
}

// isReported reports whether there is a shortage.
func (s *shortage) isReported() bool { return !s.first.IsZero() }

// check logs the end of a shortage.
func (s *shortage) check(now time.Time) {
	if s.isReported() && now.Sub(s.last) > shortageEnd {
		s.log.Info("probes are no longer delayed: enough file descriptors", "after", s.last.Sub(s.first).Round(time.Millisecond))
		s.first = time.Time{}
	}
}

// descriptors returns the limit of concurrent probes: the process's limit of open files, less an
// eighth for everything else.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20) / 8 * 7)
}
