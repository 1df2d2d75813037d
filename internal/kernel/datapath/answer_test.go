package datapath_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"loxilb/test/packet/lab"
)

// TestICMPRate checks that ICMP errors are limited, and that the drops that they report are not.
func TestICMPRate(t *testing.T) {
	t.Parallel()
	inLab(t, "10.0.0.1:53/udp endpoints=192.168.1.10:5353:0", func(l *lab.Lab) error {
		return wantLimited(l, "udp 1.1.1.1:4000 > 10.0.0.1:53", "no-endpoint", 8000, 1000)
	})
}

// TestResetRate checks that RSTs to segments without a connection are limited, too.
func TestResetRate(t *testing.T) {
	t.Parallel()
	const rate = 100
	inLabWith(t, lab.Config{ResetRate: rate}, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080", func(l *lab.Lab) error {
		return wantLimited(l, "tcp 1.1.1.1:4000 > 10.0.0.1:80 A ack 7", "no-connection", 2000, rate)
	})
}

// TestResetToSYN checks that a refused SYN always gets an answer, during any flood of other
// segments.
func TestResetToSYN(t *testing.T) {
	t.Parallel()
	inLabWith(t, lab.Config{ResetRate: 1}, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080:0", func(l *lab.Lab) error {
		for i := range 300 {
			res, err := sendLine(l, "tcp 1.1.1.1:4000 > 10.0.0.1:80 S")
			if err != nil {
				return err
			}
			if res.Verdict != "out" || res.Reason != "no-endpoint" {
				return fmt.Errorf("SYN %d: %s %s", i, res.Verdict, res.Reason)
			}
		}
		return nil
	})
}

// wantLimited sends packets that are dropped for a reason, and checks that the number of answers
// stays within the limit, which each CPU may use up for a second at once.
func wantLimited(l *lab.Lab, line, reason string, packets, rate int) error {
	start, answers := time.Now(), 0
	for range packets {
		res, err := sendLine(l, line)
		if err != nil {
			return err
		}
		if res.Reason != reason {
			return fmt.Errorf("the packet: %s %s, want a drop for the given reason", res.Verdict, res.Reason)
		}
		if res.Verdict == "out" {
			answers++
		}
	}
	most := (int(time.Since(start)/time.Second) + 2) * rate * runtime.NumCPU()
	if answers < rate || answers > most {
		return fmt.Errorf("%d answers in %v, want %d to %d", answers, time.Since(start), rate, most)
	}
	return nil
}

// TestQuiet checks that a segment without a connection is left unanswered while the nodes of a
// cluster have just changed, and refused before and afterwards.
func TestQuiet(t *testing.T) {
	t.Parallel()
	inLab(t, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080", testQuiet("no-connection", func(d time.Duration) (all, hashed time.Duration) { return d, 0 }))
}

// TestQuietMidstream checks that such a segment is also not forwarded to the endpoint of its hash
// at first: the connection may belong to another endpoint. It is forwarded before other segments
// are answered again.
func TestQuietMidstream(t *testing.T) {
	t.Parallel()
	const line = "10.0.0.1:80/tcp mode=dsr select=hash endpoints=192.168.1.10:80"
	inLab(t, line, testQuiet("", func(d time.Duration) (all, hashed time.Duration) { return d, d }))
	inLab(t, line, func(l *lab.Lab) error {
		if err := l.Datapath.KeepQuiet(5*time.Second, 0); err != nil {
			return err
		}
		res, err := sendLine(l, "tcp 1.1.1.1:4000 > 10.0.0.1:80 A ack 7")
		if err == nil && res.Verdict != "out" {
			err = fmt.Errorf("%s %s instead of out", res.Verdict, res.Reason)
		}
		return err
	})
}

// testQuiet returns a test that sends a segment without a connection, and expects a drop with this
// reason, unless unknown connections are left unanswered. times returns how long all segments, and
// those to services that hash, are left unanswered.
func testQuiet(reason string, times func(time.Duration) (all, hashed time.Duration)) func(l *lab.Lab) error {
	return func(l *lab.Lab) error {
		for n, c := range []struct {
			quiet time.Duration
			want  string
			why   string
		}{{0, "out", reason}, {5 * time.Second, "drop", "no-connection"}, {0, "out", reason}} {
			if err := l.Datapath.KeepQuiet(times(c.quiet)); err != nil {
				return err
			}
			res, err := sendLine(l, fmt.Sprintf("tcp 1.1.1.1:%d > 10.0.0.1:80 A ack 7", 4000+n))
			if err != nil {
				return err
			}
			if res.Verdict != c.want || res.Reason != c.why {
				return fmt.Errorf("quiet for %v: %s %s, want %s", c.quiet, res.Verdict, res.Reason, c.want)
			}
		}
		return nil
	}
}
