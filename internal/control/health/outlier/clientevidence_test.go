package outlier

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb/report"
)

// tickFor ticks for d. Endpoints accept every check of the daemon.
func (r *rig) tickFor(d time.Duration, each func(turn int)) {
	for turn := range int(d / ReadInterval) {
		each(turn)
		for i := range r.rows {
			if _, checked := r.checks[at(i)]; checked {
				r.answer(i, "")
			}
		}
		r.tick()
	}
}

// ejected reports whether endpoint 0 was taken out for a reason that contains words.
func (r *rig) ejected(words string) bool {
	for _, decision := range r.decisions {
		if strings.HasPrefix(decision, "out 0 ") && strings.Contains(decision, words) {
			return true
		}
	}
	return false
}

// TestAsymmetricRoute checks that an endpoint that accepts the daemon's checks is taken out when
// none of its handshakes with several clients completes, while those of the other endpoints do. A
// flood of SYNs from forged addresses cannot do that to an endpoint that sometimes completes a
// handshake.
func TestAsymmetricRoute(t *testing.T) {
	t.Parallel()
	attempt := func(r *rig, i int, n uint64, clients uint32) {
		r.rows[i].Count.Opened += n
		r.rows[i].Clients += clients
	}
	for _, c := range []struct {
		name      string
		endpoints int
		each      func(r *rig, turn int)
		out       bool
	}{
		{"asymmetric route", 3, func(r *rig, _ int) {
			attempt(r, 0, 1, 1)
			r.serve(1, 1)
			r.serve(2, 1)
		}, true},
		{"two endpoints", 2, func(r *rig, _ int) {
			attempt(r, 0, 1, 1)
			r.serve(1, 1)
		}, true},
		{"under a flood as well", 3, func(r *rig, _ int) {
			for i := range 3 {
				attempt(r, i, 2, 2) // forged
			}
			attempt(r, 0, 2, 1)
			r.serve(1, 2)
			r.serve(2, 2)
		}, true},
		{"one client", 3, func(r *rig, _ int) {
			attempt(r, 0, 1, 0)
			r.serve(1, 1)
			r.serve(2, 1)
		}, false},
		{"a flood, no clients", 3, func(r *rig, _ int) {
			for i := range 3 {
				attempt(r, i, 100, 100)
			}
		}, false},
		{"a flood at one endpoint, and unused siblings", 3, func(r *rig, _ int) { attempt(r, 0, 100, 100) }, false},
		{"a flood, and few clients", 3, func(r *rig, turn int) {
			for i := range 3 {
				attempt(r, i, 20, 20)
				if turn%12 == 4*i { // one endpoint after the other
					r.serve(i, 1)
				}
			}
		}, false},
		{"a flood at one endpoint, and few clients", 3, func(r *rig, turn int) {
			attempt(r, 0, 100, 100)
			r.serve(turn%3, 1)
		}, false},
		{"no sibling completes any", 3, func(r *rig, _ int) {
			for i := range 3 {
				attempt(r, i, 1, 1)
			}
		}, false},
		{"siblings answer a flood that this endpoint drops", 3, func(r *rig, _ int) {
			for i := range 3 {
				attempt(r, i, 10, 10)
			}
			for i := 1; i < 3; i++ {
				r.rows[i].Count.Answered[0] += 10
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.endpoints)
			begun := r.now
			r.tickFor(3*time.Second, func(turn int) { c.each(r, turn) })
			if r.ejected("its replies bypass this machine") != c.out {
				t.Errorf("after %s: %q", r.now.Sub(begun), r.decisions)
			}
			if !c.out {
				r.tickFor(10*time.Minute, func(turn int) { c.each(r, turn) })
				if r.ejected("") {
					t.Errorf("got %q, want no ejected endpoint", r.decisions)
				}
			}
		})
	}
}

// TestTrial checks that an endpoint that is out because of clients is tried with one connection in
// ten seconds, and returns when one succeeds, whatever probes and our own connections find.
func TestTrial(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.tickFor(3*time.Second, func(int) {
		r.rows[0].Count.Opened++
		r.rows[0].Clients++
		r.serve(1, 1)
		r.serve(2, 1)
	})
	if !r.ejected("") {
		t.Fatalf("got %q, want an ejected endpoint", r.decisions)
	}
	r.decisions, r.tries = nil, 0
	r.tickFor(time.Minute, func(int) {
		r.take(r.d.ProbeSucceeded(at(0), r.now))
		r.serve(1, 1)
		r.serve(2, 1)
	})
	if len(r.decisions) > 0 || r.tries < 5 || r.tries > 7 {
		t.Errorf("%d trials in a minute, %q", r.tries, r.decisions)
	}
	r.serve(0, 1)
	r.tick()
	r.want("back 0")
}

// sampled is a service of which up to eight connections to each endpoint are watched at a time, as
// in the data path.
type sampled struct {
	*rig
	watched [][]watched // by endpoint
	rand    *rand.Rand
}

// watched is a watched connection: when it is judged, and with which result.
type watched struct {
	at     time.Time
	served bool
	none   bool // without a result
}

func newSampled(t *testing.T, endpoints int, seed uint64) *sampled {
	t.Helper()
	return &sampled{newRig(t, endpoints), make([][]watched, endpoints), rand.New(rand.NewPCG(seed, 1))}
}

// connect opens a connection to endpoint i. The client sends data after sends, and the endpoint
// replies after answers, both counted from now; -1 means never.
func (s *sampled) connect(i int, sends, answers time.Duration) {
	s.serve(i, 1)
	if len(s.watched[i]) >= 8 || s.rand.IntN(8) < len(s.watched[i]) {
		return
	}
	w := watched{none: true, at: s.now.Add(2 * time.Second)}
	stalls := sends >= 0 && sends <= 2*time.Second
	switch {
	case answers >= 0 && (answers <= 2*time.Second || stalls && answers <= sends+3*time.Second):
		w = watched{at: s.now.Add(answers), served: true}
	case stalls:
		w = watched{at: s.now.Add(sends + 3*time.Second)}
	}
	s.watched[i] = append(s.watched[i], w)
}

// judge counts the connections that are due, twice a second.
func (s *sampled) judge(turn int) {
	if turn%5 > 0 {
		return
	}
	for i := range s.watched {
		left := s.watched[i][:0]
		for _, w := range s.watched[i] {
			switch {
			case w.at.After(s.now):
				left = append(left, w)
			case w.none:
			case w.served:
				s.rows[i].Served++
			default:
				s.rows[i].Stalled++
			}
		}
		s.watched[i] = left
	}
}

// TestHangs checks that an endpoint that accepts connections and never answers is out within six
// seconds: the first unanswered connection counts after three. The other endpoints answer. The
// endpoint returns after answering one connection.
func TestHangs(t *testing.T) {
	t.Parallel()
	for _, endpoints := range []int{2, 3, 10} {
		s := newSampled(t, endpoints, 7)
		hang := false
		each := func(turn int) {
			for i := range endpoints {
				if turn%2 == i%2 {
					s.connect(i, 0, map[bool]time.Duration{false: 20 * time.Millisecond, true: -1}[hang && i == 0])
				}
			}
			s.judge(turn)
		}
		s.tickFor(30*time.Second, each)
		if len(s.decisions) > 0 {
			t.Fatalf("%d endpoints: %q", endpoints, s.decisions)
		}
		hang = true
		s.tickFor(6*time.Second, each)
		if !s.ejected("without an answer for 3 s") {
			t.Errorf("%d endpoints: %q, %d stalled", endpoints, s.decisions, s.rows[0].Stalled)
		}
		s.decisions = nil
		s.tickFor(time.Minute, func(turn int) { // the endpoint gets only trials
			s.connect(1, 0, 0)
			s.judge(turn)
		})
		if len(s.decisions) > 0 || s.tries < 4 {
			t.Errorf("%d endpoints: %q, %d trials", endpoints, s.decisions, s.tries)
		}
		s.rows[0].Served++
		s.tick()
		s.want("back 0")
	}
}

// TestAllHang checks that none is taken out when all endpoints hang, as with a common database.
func TestAllHang(t *testing.T) {
	t.Parallel()
	s := newSampled(t, 4, 3)
	begun := s.now
	s.tickFor(5*time.Minute, func(turn int) {
		answer := 10 * time.Millisecond
		if s.now.Sub(begun) > time.Minute {
			answer = -1
		}
		for i := range 4 {
			s.connect(i, 0, answer)
		}
		s.judge(turn)
	})
	if len(s.decisions) > 0 {
		t.Errorf("got %q, want no decisions", s.decisions)
	}
}

// TestStallsThatClientsChoose checks services in which clients choose the endpoint. An endpoint is
// taken out if it does not answer many clients, but not because of a few clients, however many
// connections they open: these could leave requests unfinished on purpose. Such a service is also
// no reference for stalls of another one.
func TestStallsThatClientsChoose(t *testing.T) {
	t.Parallel()
	other := web
	other.Port = 443
	hash := []Service{{Key: web}}
	both := []Service{{Key: web}, {Key: other, Resets: true}}
	for _, c := range []struct {
		name     string
		services []Service
		stall    func(rows, others []report.HandshakeRow, turn int)
		out      bool
	}{
		{"rr", []Service{{Key: web, Resets: true}}, func(rows, _ []report.HandshakeRow, _ int) { rows[0].Stalled++ }, true},
		{"hash, one client", hash, func(rows, _ []report.HandshakeRow, turn int) { recordStall(rows, 1, turn) }, false},
		{"hash, four clients", hash, func(rows, _ []report.HandshakeRow, turn int) { recordStall(rows, 4, turn) }, false},
		{"hash, eight clients", hash, func(rows, _ []report.HandshakeRow, turn int) { recordStall(rows, 8, turn) }, true},
		{"hash, and others are served", hash, func(rows, _ []report.HandshakeRow, turn int) {
			if recordStall(rows, 8, turn); turn%4 == 0 {
				rows[0].Served++
			}
		}, false},
		{"hash, and rr", both, func(rows, others []report.HandshakeRow, turn int) {
			recordStall(rows, 4, turn)
			others[0].Completed++ // it is an endpoint of the other service, too
			others[1].Served++
			others[2].Served++
		}, false},
		{"hash, and rr where all stall", both, func(_, others []report.HandshakeRow, _ int) {
			for i := range others {
				others[i].Stalled++
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			r.d.Watch(c.services)
			others := slices.Clone(r.rows)
			r.tickFor(time.Minute, func(turn int) {
				for i := range r.rows {
					r.serve(i, 1)
					if i > 0 || turn <= 100 {
						r.rows[i].Served++
					}
				}
				if turn > 100 {
					c.stall(r.rows, others, turn-101)
				} else {
					others[turn%3].Served++
				}
				r.d.Observe(other, others)
			})
			if r.ejected("without an answer for 3 s") != c.out {
				t.Errorf("got %q, want an endpoint ejected because it hangs: %t", r.decisions, c.out)
			}
		})
	}
}

// recordStall records a stalled connection at the first endpoint. It is of a new client in each of
// the first turns, and of one of these clients later.
func recordStall(rows []report.HandshakeRow, clients, turn int) {
	rows[0].Stalled++
	if turn < clients {
		rows[0].StalledClients++
	}
}

// TestHourOfSilence checks that an hour of traffic in which endpoints are silent for legitimate
// reasons takes none out.
func TestHourOfSilence(t *testing.T) {
	t.Parallel()
	const never = time.Duration(-1)
	upTo := func(s *sampled, seconds float64) time.Duration {
		return time.Duration(s.rand.Float64() * seconds * 1e9)
	}
	for name, connection := range map[string]func(s *sampled) (sends, answers time.Duration){
		"long poll":        func(s *sampled) (time.Duration, time.Duration) { return 0, upTo(s, 60) },
		"server push":      func(s *sampled) (time.Duration, time.Duration) { return never, upTo(s, 0.05) }, // SMTP, MySQL
		"slow server push": func(s *sampled) (time.Duration, time.Duration) { return never, upTo(s, 30) },   // greylisting
		"idle":             func(*sampled) (time.Duration, time.Duration) { return never, never },
		"keep-alive":       func(s *sampled) (time.Duration, time.Duration) { return 0, upTo(s, 0.2) },
		"log shipping":     func(*sampled) (time.Duration, time.Duration) { return 0, never },
		"half of it long poll": func(s *sampled) (time.Duration, time.Duration) {
			if s.rand.IntN(2) == 0 {
				return 0, upTo(s, 60)
			}
			return 0, upTo(s, 0.1)
		},
		"a tenth of it uploads": func(s *sampled) (time.Duration, time.Duration) {
			if s.rand.IntN(10) == 0 {
				return 0, 5*time.Second + upTo(s, 60)
			}
			return 0, upTo(s, 0.1)
		},
	} {
		for _, endpoints := range []int{2, 5} {
			for _, every := range []int{1, 30} { // turns
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					s := newSampled(t, endpoints, 11)
					next := 0
					s.tickFor(time.Hour, func(turn int) {
						for range 3 {
							if turn%every == 0 {
								sends, answers := connection(s)
								s.connect(next%endpoints, sends, answers)
								next++
							}
						}
						s.judge(turn)
					})
					if len(s.decisions) > 0 {
						t.Errorf("%d endpoints: %q", endpoints, s.decisions)
					}
				})
			}
		}
	}
}
