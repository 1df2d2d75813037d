package access

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// After five failures a source waits, and others do not; a success forgets them.
func TestLimiter(t *testing.T) {
	t.Parallel()
	l, now := NewLimiter(), time.Now()
	l.now = func() time.Time { return now }
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for i := range failuresAtOnce {
		if wait := l.Try(a); wait != 0 {
			t.Errorf("try %d waits %s", i, wait)
		}
	}
	if wait := l.Try(a); wait != failureTime {
		t.Errorf("one more waits %s", wait)
	}
	if wait := l.Try(netip.MustParseAddr("::ffff:10.0.0.1")); wait != failureTime {
		t.Errorf("written in another way it waits %s", wait)
	}
	if wait := l.Try(b); wait != 0 {
		t.Errorf("another source waits %s", wait)
	}
	now = now.Add(failureTime)
	if wait := l.Try(a); wait != 0 {
		t.Errorf("later it waits %s", wait)
	}
	if wait := l.Try(a); wait == 0 {
		t.Error("later it may try twice")
	}
	l.Succeeded(a)
	if wait := l.Try(a); wait != 0 {
		t.Errorf("after a success it waits %s", wait)
	}
	for i := range 2 * failuresAtOnce {
		address := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)})
		if wait := l.Try(address); (wait == 0) != (i < failuresAtOnce) {
			t.Errorf("address %d of one network waits %s", i, wait)
		}
	}
}

// However many sources try, what is remembered is bounded, and tries at once are no way around.
func TestLimiterBounded(t *testing.T) {
	t.Parallel()
	l := NewLimiter()
	for i := range 3 * maxSources {
		l.Try(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if n := len(l.sources); n > maxSources {
		t.Errorf("%d sources are remembered", n)
	}
	var allowed atomic.Int32
	var running sync.WaitGroup
	for range 100 {
		running.Go(func() {
			if l.Try(netip.MustParseAddr("192.0.2.1")) == 0 {
				allowed.Add(1)
			}
		})
	}
	running.Wait()
	if n := allowed.Load(); n != failuresAtOnce {
		t.Errorf("%d tries at once", n)
	}
}

// A try that nobody has looked at, as others were busy, is none.
func TestUntried(t *testing.T) {
	t.Parallel()
	l, from := NewLimiter(), netip.MustParseAddr("10.0.0.1")
	for i := range 3 * failuresAtOnce {
		if wait := l.Try(from); wait > 0 {
			t.Fatalf("try %d waits %v", i, wait)
		}
		l.Untried(from)
	}
	for range failuresAtOnce {
		l.Try(from)
	}
	if l.Try(from) == 0 {
		t.Error("failures do not count")
	}
}
