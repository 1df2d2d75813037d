package access

import (
	"net/netip"
	"strings"
	"sync"
	"time"
)

// The limits of failed logins at once. Each failureTime allows another one. A user has a larger
// limit than a source, so an attacker cannot lock out an administrator with a few requests.
const (
	sourceFailures = 5
	userFailures   = 25
	failureTime    = 10 * time.Second
	trustTime      = 24 * time.Hour // a source that has logged in as a user is exempt from that user's limit
	maxKeys        = 4096           // maximum number of keys of each kind
)

// A Limiter slows down password guessing. It counts failed logins per source and per user, so
// spreading guesses over users or sources does not help an attacker. A success clears only the
// failures of the same source for the same user: otherwise an attacker could reset the count by a
// login to its own account.
//
// A source is an IPv4 address or an IPv6 network of 64 bits.
type Limiter struct {
	now func() time.Time

	mu      sync.Mutex
	sources deadlines[netip.Prefix]
	users   deadlines[string]
	pairs   deadlines[pair]
	trusted deadlines[pair]
}

// A pair is a source that logs in as a user.
type pair struct {
	source netip.Prefix
	user   string
}

// maxKeyName bounds the memory of a key: no user has a longer name.
const maxKeyName = 64

func pairOf(a netip.Addr, user string) pair {
	return pair{sourceOf(a), strings.Clone(user[:min(len(user), maxKeyName)])}
}

// NewLimiter returns a Limiter without failures.
func NewLimiter() *Limiter {
	return &Limiter{
		now: time.Now, sources: deadlines[netip.Prefix]{}, users: deadlines[string]{},
		pairs: deadlines[pair]{}, trusted: deadlines[pair]{},
	}
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

// Try counts a login as failed until Succeeded or Uncount undoes that, which also bounds concurrent
// logins. It returns how long the caller must wait; 0: continue.
func (l *Limiter) Try(a netip.Addr, user string) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, p := l.now(), pairOf(a, user)
	wait = l.sources.wait(p.source, now, sourceFailures)
	if l.trusted[p].Before(now) {
		wait = max(wait, l.users.wait(p.user, now, userFailures))
	}
	if wait > 0 {
		return wait
	}
	l.sources.extend(p.source, now, failureTime)
	l.users.extend(p.user, now, failureTime)
	l.pairs.extend(p, now, failureTime)
	return 0
}

// Knows reports whether the source has logged in as the user within a day.
func (l *Limiter) Knows(a netip.Addr, user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.trusted[pairOf(a, user)].Before(l.now())
}

// Uncount undoes the count of a login whose password was not checked.
func (l *Limiter) Uncount(a netip.Addr, user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refund(pairOf(a, user), failureTime)
}

// Succeeded forgets the failures of this source for this user.
func (l *Limiter) Succeeded(a netip.Addr, user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, p := l.now(), pairOf(a, user)
	l.refund(p, l.pairs[p].Sub(now))
	l.trusted.set(p, now.Add(trustTime), now)
}

func (l *Limiter) refund(p pair, d time.Duration) {
	if d <= 0 {
		return
	}
	l.sources.reduce(p.source, d)
	l.users.reduce(p.user, d)
	l.pairs.reduce(p, d)
}

// deadlines has the time at which the last failure of each key expires.
type deadlines[K comparable] map[K]time.Time

// wait returns how long a key with a limit of n failures must wait.
func (d deadlines[K]) wait(key K, now time.Time, n int) time.Duration {
	until := d[key]
	if until.Before(now) {
		return 0
	}
	return max(0, until.Sub(now)-time.Duration(n-1)*failureTime)
}

func (d deadlines[K]) extend(key K, now time.Time, by time.Duration) {
	until := d[key]
	if until.Before(now) {
		until = now
	}
	d.set(key, until.Add(by), now)
}

func (d deadlines[K]) set(key K, until, now time.Time) {
	if _, exists := d[key]; !exists && len(d) >= maxKeys {
		d.makeRoom(now)
	}
	d[key] = until
}

func (d deadlines[K]) reduce(key K, by time.Duration) {
	if until, exists := d[key]; exists {
		d[key] = until.Add(-by)
	}
}

// makeRoom removes the keys whose failures have expired, or else the key that expires first.
func (d deadlines[K]) makeRoom(now time.Time) {
	var first K
	var earliest time.Time
	for key, until := range d {
		if until.Before(now) {
			delete(d, key)
		} else if earliest.IsZero() || until.Before(earliest) {
			first, earliest = key, until
		}
	}
	if len(d) >= maxKeys {
		delete(d, first)
	}
}
