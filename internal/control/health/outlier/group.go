package outlier

import (
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb/report"
)

// group is the endpoints of a service. There may be many, so healthy ones have little state.
type group struct {
	Service
	seen       bool                    // in the current call of Watch
	last       []reading               // by row
	members    []*target               // endpoints with state
	eligible   int                     // number of endpoints in use: at most half of them are out at a time
	ineligible map[netip.AddrPort]bool // the other endpoints
	candidates []candidate             // the eligible endpoints, if the service has backups
	rates      failureRates
	servers    servers
	completed  uint64 // total number of completed handshakes with all endpoints
}

// candidate is an endpoint with its level among backups.
type candidate struct {
	at       netip.AddrPort
	level    uint8
	inactive bool // it currently takes no new connections
}

// reading is the last reading of an endpoint's counters.
type reading struct {
	id          uint32
	counts      [counted]uint32 // modulo 2^32
	times       [report.HandshakeBuckets]uint32
	lastActive  uint32 // round of the last events; 0: none
	lastAnswer  uint32 // round of the last answer to a client; 0: none
	usualBucket int8   // the bucket that most handshakes are in
	idle        bool
	answers
}

// Indexes of reading.counts.
const (
	opened = iota
	answered
	repeated
	refused
	unreachable
	reset
	completed
	clients
	served
	stalled
	stalledClients // modulo 2^16
	counted        // number of counts
)

// unknownBucket is the usual bucket before the first handshake.
const unknownBucket = -1

func countsOf(row *report.HandshakeRow) [counted]uint32 {
	h := &row.Count
	return [counted]uint32{
		opened: uint32(h.Opened), answered: uint32(h.AllAnswered()), repeated: uint32(h.Repeated), refused: uint32(h.Refused),
		unreachable: uint32(h.Unreachable), reset: uint32(h.Reset),
		completed: row.Completed, clients: row.Clients, served: row.Served, stalled: row.Stalled,
		stalledClients: uint32(row.StalledClients),
	}
}

func timesOf(h *report.Handshakes) (times [report.HandshakeBuckets]uint32) {
	for i, n := range h.Answered {
		times[i] = uint32(n)
	}
	return times
}

func newReading(r *report.HandshakeRow) reading {
	return reading{id: r.ID, counts: countsOf(r), times: timesOf(&r.Count), usualBucket: unknownBucket, idle: r.Idle}
}

// update reads the counters again, and returns the events since the last reading; false: there are
// none. byClient reports whether a client's address determines its endpoint.
func (r *reading) update(row *report.HandshakeRow, round uint32, byClient bool) (delta tally, ok bool) {
	now := countsOf(row)
	if now == r.counts {
		return delta, false
	}
	was := r.counts
	r.counts, r.lastActive = now, round
	if int32(now[opened]-was[opened]) < 0 { // the counters were cleared
		return delta, false
	}
	delta = tally{
		opened: uint64(now[opened] - was[opened]), answered: uint64(now[answered] - was[answered]), repeated: uint64(now[repeated] - was[repeated]),
		refused: uint64(now[refused] - was[refused]), unreachable: uint64(now[unreachable] - was[unreachable]),
		completed: uint64(now[completed] - was[completed]), clients: uint64(now[clients] - was[clients]),
		served: uint64(now[served] - was[served]),
	}
	newStalled := uint64(now[stalled] - was[stalled])
	if byClient {
		delta.stalledByClient, delta.stallingClients = newStalled, uint64(uint16(now[stalledClients]-was[stalledClients]))
	} else {
		delta.reset, delta.stalled = uint64(now[reset]-was[reset]), newStalled
	}
	if delta.answered > 0 {
		r.lastAnswer = round
		r.updateUsualBucket(&row.Count)
	}
	r.answers.add(delta.served, newStalled, round)
	return delta, true
}

// updateUsualBucket moves the usual bucket by one towards the bucket that most new handshakes are
// in.
func (r *reading) updateUsualBucket(h *report.Handshakes) {
	now := timesOf(h)
	var most int8
	for i := range now {
		if now[i]-r.times[i] > now[most]-r.times[most] {
			most = int8(i)
		}
	}
	r.times = now
	switch {
	case r.usualBucket == unknownBucket:
		r.usualBucket = most
	case most > r.usualBucket:
		r.usualBucket++
	case most < r.usualBucket:
		r.usualBucket--
	}
}

// failureRates are the failure rates of a service's endpoints with recent connections. They are
// computed once per round, for all suspects.
type failureRates struct {
	round   uint32    // when they were computed
	healthy int       // number of endpoints without state, whose rate is 0
	rates   []float64 // rates of the other endpoints, sorted
}

// medianWithout returns the median of the other endpoints' failure rates. t has recent connections.
func (g *group) medianWithout(t *target, round uint32) (float64, bool) {
	if g.rates.round != round {
		g.rates = g.failureRatesOf(round)
	}
	s := &g.rates
	all := s.healthy + len(s.rates)
	if all < 2 {
		return 0, false
	}
	at, _ := slices.BinarySearch(s.rates, t.recent.failureRate())
	n := (all - 1) / 2
	if n >= s.healthy+at { // skip its own rate
		n++
	}
	if n < s.healthy {
		return 0, true
	}
	return s.rates[n-s.healthy], true
}

func (g *group) failureRatesOf(round uint32) failureRates {
	s := failureRates{round: round, rates: g.rates.rates[:0]}
	for i := range g.last {
		if g.last[i].lastActive != 0 && isRecent(g.last[i].lastActive, round) {
			s.healthy++
		}
	}
	for _, t := range g.members {
		if isRecent(t.lastActive, round) {
			s.healthy--
		}
		if !t.out && t.recent.opened > 0 {
			s.rates = append(s.rates, t.recent.failureRate())
		}
	}
	s.healthy = max(s.healthy, 0) // members may have been active only in other services
	slices.Sort(s.rates)
	return s
}

// isRecent reports whether the last events of an endpoint are recent.
func isRecent(lastActive, round uint32) bool {
	return round-lastActive < uint32(countHalfLife/ReadInterval)
}

// servers are up to two endpoints that served clients last. With two of them, at least one differs
// from any given endpoint. They are computed once per round, for all suspects.
type servers struct {
	round uint32
	list  []server
}

type server struct {
	row  int
	last uint32 // round of its last answer to a client
}

// serversAt returns the endpoints that answered clients last, if that was recent and they had no
// failure since.
func (g *group) serversAt(c clock) servers {
	if g.servers.round == c.round {
		return g.servers
	}
	suspect := make(map[int]bool, len(g.members))
	for _, t := range g.members {
		suspect[t.rows[g]] = t.out || t.pending || t.heldReason != "" || t.failsNow(c)
	}
	s := servers{round: c.round, list: g.servers.list[:0]}
	for i := range g.last {
		r := &g.last[i]
		if r.idle || suspect[i] || r.lastAnswer == 0 || c.round-r.lastAnswer > recentRounds {
			continue
		}
		s.list = append(s.list, server{i, r.lastAnswer})
		slices.SortFunc(s.list, func(a, b server) int { return int(int32(b.last - a.last)) })
		s.list = s.list[:min(len(s.list), 2)]
	}
	g.servers = s
	return s
}

// othersServe reports whether another endpoint has served clients since this one began to fail, in
// a service that sends connections to both.
func (t *target) othersServe(c clock) bool {
	failing := uint32(min(c.now.Sub(t.since)/ReadInterval, time.Duration(recentRounds)))
	return slices.ContainsFunc(t.groups, func(g *group) bool {
		return !g.ineligible[t.at] && slices.ContainsFunc(g.serversAt(c).list, func(r server) bool {
			return r.row != t.rows[g] && c.round-r.last < failing
		})
	})
}

// updateEligible determines the endpoints that should take new connections.
func (g *group) updateEligible(rows []report.HandshakeRow) {
	g.ineligible = map[netip.AddrPort]bool{}
	for i := range rows {
		if rows[i].Idle {
			g.ineligible[rows[i].Addr] = true
		}
	}
	g.eligible = len(rows) - len(g.ineligible)
}

// countOut returns how many of the eligible endpoints are out.
func (g *group) countOut() (n int) {
	for _, t := range g.members {
		if t.out && !g.ineligible[t.at] {
			n++
		}
	}
	return n
}

// updateCandidates records the levels of the eligible endpoints.
func (g *group) updateCandidates(rows []report.HandshakeRow) {
	g.candidates = g.candidates[:0]
	for i := range rows {
		if r := &rows[i]; !r.Idle {
			g.candidates = append(g.candidates, candidate{r.Addr, g.Levels[r.Addr], r.Inactive})
		}
	}
}

// hasReadyBackups reports whether backups are ready to replace an endpoint, because no other
// endpoint of its level takes connections.
func (g *group) hasReadyBackups(t *target) bool {
	if g.Levels == nil {
		return false
	}
	failed := make(map[netip.AddrPort]bool, len(g.members))
	for _, m := range g.members {
		failed[m.at] = m.out || m.heldReason != ""
	}
	level, backups := g.Levels[t.at], false
	for _, p := range g.candidates {
		switch {
		case p.at == t.at || failed[p.at]:
		case p.level > level:
			backups = true
		case p.level == level && !p.inactive:
			return false
		}
	}
	return backups
}
