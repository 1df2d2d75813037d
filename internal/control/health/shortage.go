package health

import (
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// calm is the time without a lack of descriptors after which it is reported as over.
const calm = 10 * time.Second

// shortage logs once when probes lack file descriptors, and once when that ends.
type shortage struct {
	log         *slog.Logger
	first, hits time.Time // zero: there is none
}

// hit notes that a probe did not get one.
func (s *shortage) hit(now time.Time) {
	if !s.isReported() {
		s.first = now
		s.log.Warn("probes are late, as there are no descriptors for all; raise the limit of open files (LimitNOFILE), or probe less often")
	}
	s.hits = now
}

// isReported reports whether it was reported.
func (s *shortage) isReported() bool { return !s.first.IsZero() }

// check logs the end of a shortage.
func (s *shortage) check(now time.Time) {
	if s.isReported() && now.Sub(s.hits) > calm {
		s.log.Info("there are descriptors for all probes again", "after", s.hits.Sub(s.first).Round(time.Millisecond))
		s.first = time.Time{}
	}
}

// descriptors bounds concurrent probes: the process's limit less an eighth for everything else.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20) / 8 * 7)
}
