package access

import (
	"net/netip"
	"sync"
	"time"
)

// A source may fail so often at once, and once more after each of these times.
const (
	failuresAtOnce = 5
	failureTime    = 10 * time.Second
	maxSources     = 4096 // that are remembered
)

// Limiter slows down who fails to log in. It remembers sources: IPv4 addresses, and IPv6 networks of 64 bits, of which somebody has any number.
type Limiter struct {
	now func() time.Time

	mu      sync.Mutex
	sources map[netip.Prefix]time.Time // when all failures of a source are forgotten
}

// NewLimiter makes one that remembers nobody.
func NewLimiter() *Limiter {
	return &Limiter{now: time.Now, sources: map[netip.Prefix]time.Time{}}
}

func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address: a UNIX socket
	}
	return p
}

// Try counts a try as a failure, until Succeeded takes it back: so many tries may be at work at once, and no more.
func (l *Limiter) Try(a netip.Addr) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, source := l.now(), sourceOf(a)
	until, there := l.sources[source]
	if until.Before(now) {
		until = now
	}
	if wait := until.Sub(now) - (failuresAtOnce-1)*failureTime; wait > 0 {
		return wait
	}
	if !there && len(l.sources) >= maxSources {
		l.forget(now)
	}
	l.sources[source] = until.Add(failureTime)
	return 0
}

// Untried takes a try back that nobody has looked at.
func (l *Limiter) Untried(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until, there := l.sources[sourceOf(a)]; there {
		l.sources[sourceOf(a)] = until.Add(-failureTime)
	}
}

// Succeeded forgets the failures of a source.
func (l *Limiter) Succeeded(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sources, sourceOf(a))
}

// forget makes room: those whose failures are over, or else the one for which that is so first.
func (l *Limiter) forget(now time.Time) {
	var first netip.Prefix
	for source, until := range l.sources {
		if until.Before(now) {
			delete(l.sources, source)
		} else if best, there := l.sources[first]; !there || until.Before(best) {
			first = source
		}
	}
	if len(l.sources) >= maxSources {
		delete(l.sources, first)
	}
}
