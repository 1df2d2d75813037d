package outlier

import (
	"strings"
	"testing"
	"time"
)

// TestKept checks that when all endpoints of a service fail, those that stay in rotation are
// reported as failing, once each, until one of our own connections succeeds or a client gets an
// answer.
func TestKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		endpoints      int
		out, kept      int
		clientSucceeds bool
	}{
		{"the only endpoint", 1, 0, 1, false},
		{"one of two stays", 2, 1, 1, false},
		{"two of three stay", 3, 1, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.endpoints)
			for i := range r.rows {
				r.rows[i].Count.Opened += 3
			}
			answerAll := func(failure string, d time.Duration) {
				for end := r.now.Add(d); r.now.Before(end); r.tick() {
					for i := range r.rows {
						if _, checked := r.checks[at(i)]; checked {
							r.answer(i, failure)
						}
					}
				}
			}
			answerAll("no answer", 4*time.Second)
			count := map[string]int{}
			for _, decision := range r.decisions {
				count[decision[:strings.IndexByte(decision, ' ')]]++
			}
			if len(count) > 2 || count["out"] != c.out || count["kept"] != c.kept {
				t.Fatalf("got %q, want %d endpoints ejected and %d kept in rotation, at most two decisions each", r.decisions, c.out, c.kept)
			}
			r.decisions = nil
			if c.clientSucceeds {
				for i := range r.rows {
					r.serve(i, 1)
				}
				r.tick()
				r.tick()
			} else {
				answerAll("", 2*time.Second)
			}
			back := 0
			for _, decision := range r.decisions {
				if strings.HasPrefix(decision, "back ") {
					back++
				}
			}
			if back != c.kept && back != c.endpoints { // the endpoint that is out is probed, too
				t.Errorf("got %q, want %d endpoints to return, or all %d", r.decisions, c.kept, c.endpoints)
			}
		})
	}
}

// TestKeptLeaves checks that a failing endpoint in rotation leaves as soon as others can serve, and
// that it is no longer reported after its service is deleted.
func TestKeptLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for i := range 2 {
		r.rows[i].Count.Opened += 3
		for len(r.checks) == 0 {
			r.tick()
		}
		r.answer(i, "no answer")
	}
	if len(r.decisions) != 2 || !strings.HasPrefix(r.decisions[0], "out 0 ") || !strings.HasPrefix(r.decisions[1], "kept 1 ") {
		t.Fatalf(`got %q, want 2 elements, r.decisions[0] begins with "out 0 ", r.decisions[1] begins with "kept 1 "`,
			r.decisions)
	}
	r.decisions = nil
	r.take(r.d.ProbeSucceeded(at(0), r.now))
	r.tick()
	if len(r.decisions) != 2 || r.decisions[0] != "back 0" || !strings.HasPrefix(r.decisions[1], "out 1 ") {
		t.Fatalf(`got %q, want 2 elements, r.decisions[0] == "back 0", r.decisions[1] begins with "out 1 "`, r.decisions)
	}
	r.rows[2].Count.Opened += 3
	for len(r.checks) == 0 {
		r.tick()
	}
	r.answer(2, "no answer")
	r.decisions = nil
	r.d.Watch(nil)
	r.take(r.d.Decide(r.now))
	if len(r.decisions) != 2 {
		t.Errorf("got %q, want 2 elements", r.decisions)
	}
}

// TestUnserved checks that endpoints that accept our own connections are reported as failing when a
// service answers none of several clients, whatever probes find. SYNs of one client, or of few,
// have no effect.
func TestUnserved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		endpoints int
		clients   uint32 // number of clients
		siblings  bool   // complete handshakes
		kept      int
	}{
		{"the only endpoint", 1, 3, false, 1},
		{"all of three", 3, 3, false, 3},
		{"one client", 1, 0, false, 0},
		{"two changes", 1, 2, false, 0},
		{"another endpoint serves", 2, 3, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.endpoints)
			silent := r.rows
			if c.siblings {
				silent = r.rows[:1]
			}
			r.tickFor(5*time.Second, func(turn int) {
				for i := range silent {
					if turn%5 == 0 {
						silent[i].Count.Opened++
					}
					if turn%5 == 0 && uint32(turn/5) < c.clients {
						silent[i].Clients++
					}
				}
				if c.siblings && turn == 20 {
					r.serve(1, 1)
				}
				for i := range silent {
					r.take(r.d.ProbeSucceeded(at(i), r.now))
				}
			})
			kept := 0
			for _, decision := range r.decisions {
				if strings.HasPrefix(decision, "kept ") && strings.Contains(decision, "of several clients") {
					kept++
				} else if !strings.HasPrefix(decision, "asymmetric ") {
					t.Errorf(`got %q, want a decision that begins with "asymmetric "`, decision)
				}
			}
			if kept != c.kept {
				t.Fatalf("got %q, want an endpoint kept in rotation %d times", r.decisions, c.kept)
			}
			r.decisions = nil
			r.serve(0, 1)
			r.tick()
			r.tick()
			r.tick()
			back := 0
			for _, decision := range r.decisions {
				if strings.HasPrefix(decision, "back ") {
					back++
				}
			}
			if back != c.kept {
				t.Errorf("after an answer: %q", r.decisions)
			}
		})
	}
}

// TestUnservedWhileDead checks that SYNs that met a dead endpoint do not count once it accepts
// connections again.
func TestUnservedWhileDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	failure := "no answer"
	for turn := range 60 {
		if turn < 40 {
			r.rows[0].Count.Opened++
			r.rows[0].Clients++
		} else {
			failure = ""
		}
		r.tick()
		if _, checked := r.checks[at(0)]; checked {
			r.answer(0, failure)
		}
	}
	if len(r.decisions) != 2 || !strings.HasPrefix(r.decisions[0], "kept 0 ") || r.decisions[1] != "back 0" {
		t.Errorf(`got %q, want 2 elements, r.decisions[0] begins with "kept 0 ", r.decisions[1] == "back 0"`, r.decisions)
	}
}

// TestUnservedExpires checks that attempts of possibly forged clients keep an endpoint down, and
// its problem listed, only while more arrive. Without any, the detector becomes idle.
func TestUnservedExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	attempt := func(every time.Duration) func(int) {
		return func(turn int) {
			if every == 0 || turn%int(every/ReadInterval) != 0 {
				return
			}
			for i := range r.rows {
				r.rows[i].Count.Opened++
				r.rows[i].Clients++
			}
		}
	}
	count := func(what string) (n int) {
		for _, decision := range r.decisions {
			if strings.HasPrefix(decision, what+" ") {
				n++
			}
		}
		return n
	}
	r.tickFor(8*time.Second, attempt(500*time.Millisecond))
	if count("kept") != 2 || count("asymmetric") != 2 {
		t.Fatalf(`got %q, want count("kept") == 2, count("asymmetric") == 2`, r.decisions)
	}
	r.decisions = nil
	r.tickFor(5*time.Minute, attempt(attemptMemory/2))
	if len(r.decisions) > 0 {
		t.Errorf("while attempts come: %q", r.decisions)
	}
	r.tickFor(attemptMemory/2, attempt(0))
	if len(r.decisions) > 0 {
		t.Errorf("shortly after the last attempt: %q", r.decisions)
	}
	r.tickFor(attemptMemory, attempt(0))
	if count("back") != 2 || count("symmetric") != 2 || len(r.decisions) != 4 {
		t.Errorf("long after the last attempt: %q", r.decisions)
	}
	r.tickFor(time.Minute, attempt(0)) // shares of failures halve
	if !r.d.Idle() {
		t.Error("the detector is not idle")
	}
}
