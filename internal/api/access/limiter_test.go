package access

import (
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/test/race"
)

// TestLimiter checks that a source waits after five failures, that others do not, and that a
// success resets the count.
func TestLimiter(t *testing.T) {
	t.Parallel()
	l, now := NewLimiter(), time.Now()
	l.now = func() time.Time { return now }
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for i := range sourceFailures {
		if wait := l.Try(a, "admin"); wait != 0 {
			t.Errorf("try %d waits %s", i, wait)
		}
	}
	if wait := l.Try(a, "admin"); wait != failureTime {
		t.Errorf("one more waits %s", wait)
	}
	if wait := l.Try(netip.MustParseAddr("::ffff:10.0.0.1"), "admin"); wait != failureTime {
		t.Errorf("as an IPv4-mapped address it waits %s", wait)
	}
	if wait := l.Try(b, "admin"); wait != 0 {
		t.Errorf("another source waits %s", wait)
	}
	now = now.Add(failureTime)
	if wait := l.Try(a, "admin"); wait != 0 {
		t.Errorf("later it waits %s", wait)
	}
	if wait := l.Try(a, "admin"); wait == 0 {
		t.Error("later it may try twice at once")
	}
	if l.Knows(a, "admin") {
		t.Error("a source that has not logged in is known")
	}
	l.Succeeded(a, "admin")
	if !l.Knows(a, "admin") || l.Knows(b, "admin") || l.Knows(a, "other") {
		t.Error("only the source that has logged in is known, as that user")
	}
	if wait := l.Try(a, "admin"); wait != 0 {
		t.Errorf("after a success it waits %s", wait)
	}
	for i := range 2 * sourceFailures {
		address := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)})
		if wait := l.Try(address, "admin"); (wait == 0) != (i < sourceFailures) {
			t.Errorf("address %d of one network waits %s", i, wait)
		}
	}
}

// TestLimiterBounded checks that memory stays bounded with any number of sources.
func TestLimiterBounded(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	l := NewLimiter()
	for i := range 3 * maxKeys {
		at, user := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), strconv.Itoa(i)
		l.Try(at, user)
		l.Succeeded(at, user)
		l.Try(at, user)
	}
	if n := max(len(l.sources), len(l.users), len(l.pairs), len(l.trusted)); n > maxKeys {
		t.Errorf("%d keys are remembered", n)
	}
}

// TestLimiterAtOnce checks that concurrent attempts are limited.
func TestLimiterAtOnce(t *testing.T) {
	t.Parallel()
	l := NewLimiter()
	var allowed atomic.Int32
	var running sync.WaitGroup
	for range 100 {
		running.Go(func() {
			if l.Try(netip.MustParseAddr("192.0.2.1"), "admin") == 0 {
				allowed.Add(1)
			}
		})
	}
	running.Wait()
	if n := allowed.Load(); n != sourceFailures {
		t.Errorf("%d tries at once", n)
	}
}

// TestLimiterLocks checks that every method locks the counts: by the race detector, and by the
// clock, which is read under the lock.
func TestLimiterLocks(t *testing.T) {
	t.Parallel()
	l, from := NewLimiter(), netip.MustParseAddr("10.0.0.1")
	l.now = func() time.Time {
		if l.mu.TryLock() {
			defer l.mu.Unlock()
			t.Error("the counts are not locked")
		}
		return time.Now()
	}
	for name, method := range map[string]func(){
		"Try": func() { l.Try(from, "admin") }, "Knows": func() { l.Knows(from, "admin") },
		"Untried": func() { l.Uncount(from, "admin") }, "Succeeded": func() { l.Succeeded(from, "admin") },
	} {
		t.Run(name, func(*testing.T) {
			l.Try(from, "admin") // creates a count to write before the goroutines start
			var running sync.WaitGroup
			for range 4 {
				running.Go(method)
			}
			running.Wait()
		})
	}
}

// TestUncount checks that an attempt that was not evaluated, because the daemon was busy, does not
// count.
func TestUncount(t *testing.T) {
	t.Parallel()
	l, from := NewLimiter(), netip.MustParseAddr("10.0.0.1")
	for i := range 3 * sourceFailures {
		if wait := l.Try(from, "admin"); wait > 0 {
			t.Fatalf("try %d waits %v", i, wait)
		}
		l.Uncount(from, "admin")
	}
	for range sourceFailures {
		l.Try(from, "admin")
	}
	if l.Try(from, "admin") == 0 {
		t.Error("failures do not count")
	}
}

// TestOwnLoginResetsNoCount checks that an attacker with an account of its own cannot reset the
// count of its failures by logging in.
func TestOwnLoginResetsNoCount(t *testing.T) {
	t.Parallel()
	l, now, from := NewLimiter(), time.Now(), netip.MustParseAddr("10.0.0.1")
	l.now = func() time.Time { return now }
	guesses := 0
	for range 20 {
		for range sourceFailures - 1 {
			if l.Try(from, "admin") == 0 {
				guesses++
			}
		}
		if l.Try(from, "guesser") == 0 {
			l.Succeeded(from, "guesser")
		}
	}
	if guesses != sourceFailures {
		t.Errorf("%d guesses at once, want %d", guesses, sourceFailures)
	}
}

// TestGuessesFromManySources checks that failures for one user are limited over all sources, and
// that the user's own source is not.
func TestGuessesFromManySources(t *testing.T) {
	t.Parallel()
	l, now, home := NewLimiter(), time.Now(), netip.MustParseAddr("192.0.2.1")
	l.now = func() time.Time { return now }
	l.Try(home, "admin")
	l.Succeeded(home, "admin")
	guesses := 0
	for i := range 10 * userFailures {
		if l.Try(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "admin") == 0 {
			guesses++
		}
	}
	if guesses != userFailures {
		t.Errorf("%d guesses at once, want %d", guesses, userFailures)
	}
	if wait := l.Try(home, "admin"); wait != 0 {
		t.Errorf("the source that the user logs in from waits %s", wait)
	}
	l.Succeeded(home, "admin")
	if wait := l.Try(netip.MustParseAddr("10.9.9.9"), "admin"); wait == 0 {
		t.Error("a success at one source forgives failures of others")
	}
	if wait := l.Try(netip.MustParseAddr("10.9.9.9"), "other"); wait != 0 {
		t.Errorf("another user waits %s", wait)
	}
}
