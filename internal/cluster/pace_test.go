package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/lb/report"
)

// paceRecorder collects what a pace passes on.
type paceRecorder struct {
	pace
	seen  sync.Mutex // the timer passes copies on, too
	sent  []report.ConnectionCopy
	times []time.Duration
}

func newPaceRecorder() *paceRecorder {
	p, began := &paceRecorder{}, time.Now()
	p.yield = func(list []report.ConnectionCopy) {
		p.seen.Lock()
		defer p.seen.Unlock()
		for _, c := range list {
			p.sent, p.times = append(p.sent, c), append(p.times, time.Since(began))
		}
	}
	return p
}

// passed returns the copies that the pace has passed on, and after how long.
func (p *paceRecorder) passed() ([]report.ConnectionCopy, []time.Duration) {
	p.seen.Lock()
	defer p.seen.Unlock()
	return p.sent, p.times
}

func state(i int, flags, generation uint8) []report.ConnectionCopy {
	c := connection(i)
	c.Flags, c.Generation = flags, generation
	return []report.ConnectionCopy{c}
}

const (
	answered = 0x02
	proven   = 0x06
	closed   = 0x7e
)

// TestPace checks that a short connection costs two records: one at once, and one with all that
// follows within a moment.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaceRecorder()
		p.add(state(1, answered, 1))
		if sent, times := p.passed(); len(sent) != 1 || times[0] != 0 {
			t.Fatalf("a new connection was sent %d times, after %v", len(sent), times)
		}
		time.Sleep(20 * time.Millisecond)
		p.add(state(1, proven, 1))
		time.Sleep(20 * time.Millisecond)
		p.add(state(1, closed, 1))
		p.add(state(1, answered, 2)) // the next connection of this port
		if sent, _ := p.passed(); len(sent) != 2 || sent[1].Generation != 2 {
			t.Fatalf("the next connection of a port was not sent at once: %v", sent)
		}
		time.Sleep(70 * time.Millisecond)
		synctest.Wait()
		if sent, times := p.passed(); len(sent) != 3 || sent[2].Flags != closed || times[2] != paceTime || sent[2].Idle != 60*time.Millisecond {
			t.Fatalf("what followed was sent as %+v after %v", sent[2:], times[2:])
		}
		time.Sleep(time.Second)
		p.add(state(1, closed, 2))
		if sent, _ := p.passed(); len(sent) != 4 || sent[3].Generation != 2 {
			t.Errorf("the end of an older connection was not sent at once: %v", sent)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		sent, _ := p.passed()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(sent) != 4 || p.timer != nil {
			t.Errorf("%d copies were sent, and the timer of an idle node runs: %v", len(sent), p.timer != nil)
		}
	})
}

// TestPaceBounds checks that copies beyond the bounds are sent at once, that none is lost, and that
// the end of the watch passes on what is held.
func TestPaceBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 2*maxPace + 100
		p := newPaceRecorder()
		for _, flags := range []uint8{answered, proven} {
			for i := range many {
				p.add(state(i, flags, 1))
			}
		}
		if len(p.held) > maxPace || len(p.current) > maxPace {
			t.Errorf("%d copies are held, of %d connections", len(p.held), len(p.current))
		}
		p.stop()
		if sent, _ := p.passed(); len(sent) != 2*many {
			t.Errorf("%d copies of %d were sent", len(sent), 2*many)
		}
		time.Sleep(time.Second)
		new(pace).stop()
	})
}

// TestRefreshOpen checks that a refresh leaves out connections that have ended: their end was sent.
func TestRefreshOpen(t *testing.T) {
	t.Parallel()
	for flags, want := range map[uint8]bool{answered: true, proven: true, 0x2e: true, 0x1e: true, closed: false, 0x86: false} {
		if got := isOpen(state(1, flags, 1)[0]); got != want {
			t.Errorf("flags %#x: refreshed %v, want %v", flags, got, want)
		}
	}
}
