package outlier

import (
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb/report"
)

// group is the endpoints of a service. There may be many, so little is kept for healthy ones.
type group struct {
	Service
	seen       bool
	last       []reading
	members    []*target               // endpoints with state
	eligible   int                     // number of endpoints in use: at most half of them are out at a time
	ineligible map[netip.AddrPort]bool // the others
	places     []place                 // of services with backups
	shares     shares
	serving    serving
	completed  uint64 // completed handshakes with all endpoints, ever
}

// place is an endpoint's position among backups.
type place struct {
	at    netip.AddrPort
	level uint8
	off   bool // it currently takes no connections
}

// reading is the last reading of an endpoint's counters.
type reading struct {
	id     uint32
	counts [counted]uint32 // modulo 2^32
	times  [report.HandshakeBuckets]uint32
	active uint32 // the number of the last reading with new results
	// lastAnswer is the number of the last reading with an answer to a client; 0: none.
	lastAnswer uint32
	usual      int8 // the bucket that most handshakes are in
	idle       bool
	answers
}

// Outcomes of SYNs.
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
	counted
)

const unknownUsual = -1

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
	return reading{id: r.ID, counts: countsOf(r), times: timesOf(&r.Count), usual: unknownUsual, idle: r.Idle}
}

// update reads the counters again, and returns the difference. clientsChoose: the client's address
// determines its endpoint.
func (r *reading) update(row *report.HandshakeRow, number uint32, clientsChoose bool) (news tally, ok bool) {
	now := countsOf(row)
	if now == r.counts {
		return news, false
	}
	was := r.counts
	r.counts, r.active = now, number
	if int32(now[opened]-was[opened]) < 0 { // cleared meanwhile
		return news, false
	}
	news = tally{
		opened: uint64(now[opened] - was[opened]), answered: uint64(now[answered] - was[answered]), repeated: uint64(now[repeated] - was[repeated]),
		refused: uint64(now[refused] - was[refused]), unreachable: uint64(now[unreachable] - was[unreachable]),
		completed: uint64(now[completed] - was[completed]), clients: uint64(now[clients] - was[clients]),
		served: uint64(now[served] - was[served]),
	}
	silent := uint64(now[stalled] - was[stalled])
	if clientsChoose {
		news.chosen, news.chosenClients = silent, uint64(uint16(now[stalledClients]-was[stalledClients]))
	} else {
		news.reset, news.stalled = uint64(now[reset]-was[reset]), silent
	}
	if news.answered > 0 {
		r.lastAnswer = number
		r.updateUsual(&row.Count)
	}
	r.answers.add(news.served, silent, number)
	return news, true
}

// updateUsual moves the usual bucket by one towards the bucket of most recent handshakes.
func (r *reading) updateUsual(h *report.Handshakes) {
	now := timesOf(h)
	var most int8
	for i := range now {
		if now[i]-r.times[i] > now[most]-r.times[most] {
			most = int8(i)
		}
	}
	r.times = now
	switch {
	case r.usual == unknownUsual:
		r.usual = most
	case most > r.usual:
		r.usual++
	case most < r.usual:
		r.usual--
	}
}

// shares are the failure rates of a service's endpoints with recent connections at the beginning of
// Decide, computed once for all suspects.
type shares struct {
	number uint32    // of that Decide
	well   int       // endpoints without state: they had no failures
	others []float64 // of the other endpoints, in order
}

// medianWithout returns the median of the other endpoints' failure rates. t has recent connections.
func (g *group) medianWithout(t *target, number uint32) (float64, bool) {
	if g.shares.number != number {
		g.shares = g.sharesOf(number)
	}
	s := &g.shares
	all := s.well + len(s.others)
	if all < 2 {
		return 0, false
	}
	at, _ := slices.BinarySearch(s.others, t.recent.share())
	n := (all - 1) / 2
	if n >= s.well+at { // after its own rate
		n++
	}
	if n < s.well {
		return 0, true
	}
	return s.others[n-s.well], true
}

func (g *group) sharesOf(number uint32) shares {
	s := shares{number: number, others: g.shares.others[:0]}
	for i := range g.last {
		if g.last[i].active != 0 && isLately(g.last[i].active, number) {
			s.well++
		}
	}
	for _, t := range g.members {
		if isLately(t.active, number) {
			s.well--
		}
		if !t.out && t.recent.opened > 0 {
			s.others = append(s.others, t.recent.share())
		}
	}
	s.well = max(s.well, 0) // evidence from another service is not counted again
	slices.Sort(s.others)
	return s
}

// isLately reports whether a reading was in the window.
func isLately(active, number uint32) bool { return number-active < uint32(window/Pace) }

// serving are the last one or two endpoints that served clients. With two of them, one differs from
// any given endpoint. They are computed once for all suspects.
type serving struct {
	reading uint32
	rows    []servingRow
}

type servingRow struct {
	row  int
	last uint32 // number of the reading with its last answer to a client
}

// servingAt returns the endpoints in use that last answered clients, in recent seconds and without
// a failure since.
func (g *group) servingAt(m moment) serving {
	if g.serving.reading == m.reading {
		return g.serving
	}
	suspect := make(map[int]bool, len(g.members))
	for _, t := range g.members {
		suspect[t.rows[g]] = t.out || t.pending || t.held != "" || t.failsNow(m)
	}
	s := serving{reading: m.reading, rows: g.serving.rows[:0]}
	for i := range g.last {
		r := &g.last[i]
		if r.idle || suspect[i] || r.lastAnswer == 0 || m.reading-r.lastAnswer > recentReadings {
			continue
		}
		s.rows = append(s.rows, servingRow{i, r.lastAnswer})
		slices.SortFunc(s.rows, func(a, b servingRow) int { return int(int32(b.last - a.last)) })
		s.rows = s.rows[:min(len(s.rows), 2)]
	}
	g.serving = s
	return s
}

// othersServe reports whether another endpoint has served clients since this one began to fail, in
// a service that also sends this one connections.
func (t *target) othersServe(m moment) bool {
	failing := uint32(min(m.now.Sub(t.since)/Pace, time.Duration(recentReadings)))
	return slices.ContainsFunc(t.groups, func(g *group) bool {
		return !g.ineligible[t.at] && slices.ContainsFunc(g.servingAt(m).rows, func(r servingRow) bool {
			return r.row != t.rows[g] && m.reading-r.last < failing
		})
	})
}

// count counts the endpoints that should take new connections.
func (g *group) count(rows []report.HandshakeRow) {
	g.ineligible = map[netip.AddrPort]bool{}
	for i := range rows {
		if rows[i].Idle {
			g.ineligible[rows[i].At] = true
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

// place records the order in which endpoints receive connections, before or instead of others.
func (g *group) place(rows []report.HandshakeRow) {
	g.places = g.places[:0]
	for i := range rows {
		if r := &rows[i]; !r.Idle {
			g.places = append(g.places, place{r.At, g.Levels[r.At], r.Off})
		}
	}
}

// hasReadyBackups reports whether backups are ready to replace an endpoint whose whole level is
// ejected or ineligible.
func (g *group) hasReadyBackups(t *target) bool {
	if g.Levels == nil {
		return false
	}
	convicted := make(map[netip.AddrPort]bool, len(g.members))
	for _, m := range g.members {
		convicted[m.at] = m.out || m.held != ""
	}
	level, backups := g.Levels[t.at], false
	for _, p := range g.places {
		switch {
		case p.at == t.at || convicted[p.at]:
		case p.level > level:
			backups = true
		case p.level == level && !p.off:
			return false
		}
	}
	return backups
}
