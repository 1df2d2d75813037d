// Package model is a model of the data path in plain Go: connections, TCP states, choice of
// endpoints, timeouts and counters. It is as simple as possible, and shares no code with the BPF
// program. If the two differ, one of them is wrong.
package model

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/internal/pkt"
)

// Model is the load balancer.
type Model struct {
	Flood bool // SYNs are challenged before their connection is looked up

	began     time.Time // when the program's clock was at 0
	doubt     bool      // the clocks are too far apart to predict the program
	now       time.Duration
	mark      uint32 // of packets
	drawnPort uint16 // the source port that the program drew at random; 0: the model draws itself
	services  map[lb.Key]*service
	table     map[tuple]entry                // two entries a connection, one for each direction; but one if answers go another way
	known     map[netip.Prefix]time.Duration // clients that have shown that they are there, and until when that counts
	answered  map[netip.Prefix]time.Duration // clients that have sent again after an answer, without TCP, and until when that counts
	short     time.Duration                  // until when source ports are short; 0: they were not yet
	numbers   map[tuple]uint32               // of challenges
	number    uint32                         // of the challenge that the program has just sent; 0: none
}

type service struct {
	lb.Service
	round     []*endpoint // one round of new connections, or the table of a hash
	clients   map[netip.Addr]*client
	next      int
	endpoints []*endpoint // as written
	ending    []*endpoint // removed, but with connections
	retired   report.EndpointStats
	refusals  report.Refusals
	short     time.Duration // until when its clients are challenged, as source ports are short; 0: they were not yet
}

type endpoint struct {
	addr  netip.AddrPort
	stats report.EndpointStats
}

// tuple identifies the connection of a packet.
type tuple struct {
	proto    lb.Protocol
	src, dst netip.AddrPort
}

// direction of a packet in its connection.
type direction int

const (
	fromClient direction = iota
	fromEndpoint
)

type entry struct {
	conn *connection
	dir  direction
}

type connection struct {
	service       *service
	endpoint      *endpoint
	client, vip   netip.AddrPort
	to            netip.AddrPort // where the endpoint listens for it
	source        netip.AddrPort // the source that the endpoint sees: the client, or one of the load balancer's addresses
	snat          bool           // source is one of the load balancer's addresses
	oneWay        bool           // the endpoint answers the client directly
	resting       bool           // it has ended, and still reserves its source port
	proto         lb.Protocol
	replied, open bool   // open: the handshake is complete; other protocols: the client has sent after an answer
	redial        uint32 // TCP: what acknowledges a SYN that the endpoint has not answered; valid iff redialled
	redialled     bool
	synAt         time.Duration // TCP: when a SYN was left for the endpoint to answer; valid iff isAsked
	hasSYNAt      bool
	sides         [2]side
}

// side is the state of one direction.
type side struct {
	lastSeen   time.Duration // when the last packet arrived
	traffic    report.Traffic
	end, acked uint32 // TCP: the number after the last that was sent; the last acknowledgement sent, or the least that is right
	reset      bool   // TCP: has sent a RST that counts
	fin        bool   // TCP: has sent a FIN ...
	finAcked   bool   // ... which the other side has acknowledged
}

// New returns a load balancer without services.
func New() *Model {
	return &Model{
		began: time.Now(), services: map[lb.Key]*service{}, table: map[tuple]entry{}, known: map[netip.Prefix]time.Duration{}, answered: map[netip.Prefix]time.Duration{}, numbers: map[tuple]uint32{},
	}
}

// Apply creates a service, or updates it.
func (m *Model) Apply(s lb.Service) {
	svc, ok := m.services[s.Key]
	if !ok {
		svc = &service{}
		m.services[s.Key] = svc
	}
	before := append(svc.endpoints, svc.ending...)
	svc.Service, svc.endpoints, svc.ending = s, nil, nil
	for _, e := range s.Endpoints {
		addr := netip.AddrPortFrom(e.Addr, e.Port)
		i := slices.IndexFunc(before, func(o *endpoint) bool { return o.addr == addr })
		if i < 0 {
			svc.endpoints = append(svc.endpoints, &endpoint{addr: addr})
			continue
		}
		svc.endpoints = append(svc.endpoints, before[i])
		before = slices.Delete(before, i, i+1)
	}
	svc.ending = before
	svc.round = places(s, svc.endpoints)
}

// layOutRound returns the endpoints of one round of new connections. Turn k of an endpoint of
// weight w is due at (2k+1)/2w of the round. If two turns are due at the same time, the endpoint
// with the higher weight comes first, then the earlier one in the list.
func layOutRound(s lb.Service, endpoints []*endpoint) []*endpoint {
	type place struct{ at, weight, index int }
	common := 1 // a multiple of all weights, so that no fraction is needed
	weight := func(i int) int {
		if w := int(s.Endpoints[i].Weight); w == 0 || s.Algorithm == lb.Priority || s.Algorithm == lb.Random {
			return w
		}
		return 1
	}
	for i := range endpoints {
		common *= max(1, weight(i))
	}
	var places []place
	for i := range endpoints {
		for k := range weight(i) {
			places = append(places, place{(2*k + 1) * common / weight(i), weight(i), i})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.weight, a.weight), cmp.Compare(a.index, b.index))
	})
	var round []*endpoint
	for _, p := range places {
		round = append(round, endpoints[p.index])
	}
	return round
}

// Delete deletes a service and its state.
func (m *Model) Delete(key lb.Key) {
	for _, e := range m.table {
		svc := e.conn.service
		if svc == m.services[key] && slices.Contains(append(svc.endpoints, svc.ending...), e.conn.endpoint) {
			m.end(e.conn)
		}
	}
	delete(m.services, key)
}

// Advance lets time pass.
func (m *Model) Advance(d time.Duration) { m.now += d }

// Sweep removes expired connections, UDP flows of removed endpoints, and removed endpoints without
// connections.
func (m *Model) Sweep() {
	for _, e := range m.table {
		if e.conn.isEndpointRemoved() && e.conn.proto != lb.TCP {
			m.end(e.conn)
		}
		if m.isOver(e.conn) {
			m.remove(e.conn)
		}
	}
	for _, svc := range m.services {
		svc.forget(m.now)
		svc.ending = slices.DeleteFunc(svc.ending, func(e *endpoint) bool {
			s := m.statsOf(e)
			if s.Tracked() > 0 {
				return false
			}
			svc.retired = add(svc.retired, s)
			return true
		})
	}
}

// isEndpointRemoved reports whether the endpoint was removed.
func (c *connection) isEndpointRemoved() bool { return slices.Contains(c.service.ending, c.endpoint) }

// Verdict is the decision about a packet.
type Verdict struct {
	Name     string // out, pass or drop
	Reason   string
	Answer   pkt.Proto      // drop: the answer to the sender; Raw: none
	Src, Dst netip.AddrPort // out: as it leaves
	Hop      netip.Addr     // out: the next hop
}

// change returns an outgoing packet after translation. mac is the next hop's MAC address.
func (v Verdict) change(p *pkt.Packet, mac net.HardwareAddr) *pkt.Packet {
	change := pkt.New(p.Proto).SetSrc(v.Src).SetDst(v.Dst)
	if v.Hop != v.Dst.Addr() {
		change.Set(pkt.To, pkt.MAC(mac))
	}
	if isEchoReply(p) {
		change.SetNum(pkt.EchoID, uint64(v.Dst.Port()))
	} else if p.Has(pkt.Type) {
		change.SetNum(pkt.EchoID, uint64(v.Src.Port()))
	}
	return change
}

func drop(reason string) Verdict { return Verdict{Name: "drop", Reason: reason} }

// answered returns a drop with an answer to the sender: time exceeded if the TTL has expired,
// otherwise a RST or an ICMP error.
func answered(p *pkt.Packet, reason string) Verdict {
	v := drop(reason)
	switch {
	case p.Proto == pkt.TCP && reason != "ttl-expired" && p.Num(pkt.Flags)&pkt.FlagRST != 0:
	case p.Proto == pkt.TCP && reason != "ttl-expired":
		v.Answer = pkt.TCP
	case p.Is6():
		v.Answer = pkt.ICMP6
	default:
		v.Answer = pkt.ICMP
	}
	return v
}

// Packet returns the verdict on a TCP, UDP or echo packet, and updates the model. length is the
// length of the IP packet.
func (m *Model) Packet(p *pkt.Packet, length int) Verdict {
	key := tupleOf(p)
	expired := p.Num(pkt.TTL) <= 1
	if m.Flood && !expired && key.proto == lb.TCP {
		if v, ok := m.beforeLookup(key, p); ok {
			return v
		}
	}
	e, ok := m.table[key]
	redials := ok && e.dir == fromClient && isSYN(p) && e.conn.reopens(p)
	var closed *connection // stays until another takes its place
	switch {
	case ok && expired:
		return answered(p, "ttl-expired")
	case ok && (m.isExpired(e.conn) || e.conn.resting || redials && e.conn.oneWay):
		m.leave(e.conn)
		ok = false
	case redials:
		closed, ok = e.conn, false
	case ok && key.proto == lb.TCP && e.dir == fromClient && isSYN(p) && !e.conn.replied && e.conn.isEndpointRemoved():
		m.leave(e.conn)
		ok = false
	case ok && key.proto == lb.TCP && e.dir == fromClient && isSYN(p) && e.conn.replied:
		switch m.redial(e.conn, p) {
		case redialDrops:
			return e.conn.service.drop("tuple-in-use")
		case redialOpens:
			m.leave(e.conn)
			ok = false
		}
	}
	if !ok {
		svc := m.find(key)
		if svc == nil || isEchoReply(p) {
			return m.directAnswer(key, p, uint64(length))
		}
		if svc.SynProtect != lb.SynProtectOff && m.answersChallenge(key, p) {
			return drop("challenge-answered")
		}
		if expired {
			return answered(p, "ttl-expired")
		}
		if key.proto == lb.TCP && !isSYN(p) && !svc.canResume(p) {
			return svc.refuse(p, "no-connection")
		}
		if v, ok := m.admit(svc, key, p, closed); !ok {
			return v
		}
		conn, reason := m.connect(svc, key, closed)
		switch reason {
		case "no-endpoint", "tuple-in-use", "snat-ports-exhausted":
			return svc.refuse(p, reason)
		case "challenged":
			return m.challenge(key)
		}
		if reason != "" {
			return svc.drop(reason)
		}
		conn.begin(p)
		e = entry{conn, fromClient}
	} else if key.proto == lb.TCP {
		opened := e.conn.open
		e.conn.segment(p, e.dir, m.now)
		if e.conn.open && !opened && !e.conn.oneWay {
			m.markKnown(key.src.Addr())
		}
	} else {
		opened := e.conn.open
		e.conn.datagram(e.dir, m.now)
		if e.conn.open && !opened && !e.conn.oneWay {
			m.answered[clientOf(key.src.Addr())] = m.now + answeredTime
		}
	}
	return e.count(uint64(length))
}

// admit decides whether a packet may open a connection of the service (ok), and returns the verdict
// if not.
func (m *Model) admit(svc *service, key tuple, p *pkt.Packet, closed *connection) (v Verdict, ok bool) {
	if svc.denies(key.src.Addr()) {
		return svc.drop("source-denied"), false
	}
	if !svc.allows(key.src.Addr()) {
		return svc.drop("source-not-allowed"), false
	}
	if len(svc.round) > 0 {
		if v, ok := m.protect(svc, key, p); !ok {
			if v.Reason == "challenged" && closed != nil {
				m.leave(closed)
			}
			countRefusal(&svc.refusals, v.Reason)
			return v, false
		}
		if m.isLimited(svc, key.src.Addr()) {
			return svc.refuse(p, "connection-limit"), false
		}
	}
	return v, true
}

// datagram updates a connection by a packet of a protocol without handshakes.
func (c *connection) datagram(dir direction, now time.Duration) {
	c.sides[dir].lastSeen = now
	c.open = c.open || dir == fromClient && (c.replied || c.oneWay)
	c.replied = c.replied || dir == fromEndpoint || c.oneWay
}

// connect opens a connection to the endpoint whose turn it is, or to one of the next three if the
// client has a live connection to it already. If the client has a live connection to each, or its
// address determines the endpoint, the connection gets another source port. It replaces a closed
// connection of the same tuple.
func (m *Model) connect(svc *service, key tuple, closed *connection) (*connection, string) {
	if len(svc.round) == 0 {
		return nil, "no-endpoint"
	}
	held := m.remembered(svc, key)
	tries := []*endpoint{}
	if held != nil {
		tries = append(tries, held)
	}
	turn := m.place(svc, key)
	for i := range uint64(4) {
		tries = append(tries, svc.round[(turn+i)%uint64(len(svc.round))])
	}
	reason, last := "", tries[0]
	for i, ep := range append(slices.Clone(tries), tries[0]) {
		keepsAddress := i == len(tries) // the client's own port is taken everywhere
		if lacksPorts(reason) && keepsAddress {
			countRefusal(&last.stats.Refusals, endpointReason(reason))
			return nil, reason
		}
		if svc.byClient() && i > 0 && !keepsAddress && !lacksPorts(reason) {
			continue
		}
		if closed != nil {
			m.leave(closed)
			closed = nil
		}
		conn := &connection{service: svc, endpoint: ep, client: key.src, vip: key.dst, source: key.src, proto: key.proto}
		conn.to = svc.listenAddress(ep, key.dst.Port())
		reason = ""
		if svc.Mode == lb.ModeDSR {
			conn.oneWay, conn.to = true, conn.vip
		} else if svc.Mode != lb.ModeDefault || conn.answerBypasses() {
			reason = m.choosePort(conn)
		} else if keepsAddress {
			reason = m.choosePortAt(conn, key.src.Addr())
		} else if !m.vacate(conn.reply(), key.src) {
			continue
		}
		if last = ep; lacksPorts(reason) {
			continue
		}
		if _, taken := m.table[key]; taken { // by replies to a source port at rest
			countRefusal(&ep.stats.Refusals, "tuple-in-use")
			return nil, "tuple-in-use"
		}
		if reason != "" {
			return nil, reason
		}
		conn.sides[0].lastSeen, conn.sides[1].lastSeen = m.now, m.now
		m.table[key] = entry{conn, fromClient}
		if !conn.oneWay {
			m.table[conn.reply()] = entry{conn, fromEndpoint}
		}
		if svc.Algorithm == lb.Persist && held == nil {
			svc.remember(key, ep, m.now)
		}
		ep.stats.Connections++
		return conn, ""
	}
	countRefusal(&tries[0].stats.Refusals, "tuple-in-use")
	return nil, "tuple-in-use"
}

// reply returns the tuple of the endpoint's packets.
func (c *connection) reply() tuple { return tuple{c.proto, c.to, c.source} }

func (m *Model) remove(c *connection) {
	own := tuple{c.proto, c.client, c.vip}
	if m.table[c.reply()].conn == c {
		delete(m.table, c.reply())
	}
	if m.table[own].conn != c {
		return
	}
	delete(m.table, own)
}

// count counts a forwarded packet, and returns its verdict.
func (e entry) count(bytes uint64) Verdict {
	c, s := e.conn, &e.conn.endpoint.stats
	add := func(t *report.Traffic) { t.Packets++; t.Bytes += bytes }
	add(&c.sides[e.dir].traffic)
	if e.dir == fromEndpoint {
		add(&s.Out)
		return Verdict{Name: "out", Src: c.vip, Dst: c.client, Hop: c.client.Addr()}
	}
	add(&s.In)
	return Verdict{Name: "out", Src: c.source, Dst: c.to, Hop: c.endpoint.addr.Addr()}
}

// NearTimeout reports whether a connection is within a few seconds of its timeout. The model's
// clock stands still between calls of Advance, so the model cannot predict whether such a
// connection has expired.
func (m *Model) NearTimeout() bool {
	if m.doubt {
		return true
	}
	for _, svc := range m.services {
		for _, c := range svc.clients {
			if d := m.now - c.seen - svc.persistTimeout(); d > -3*time.Second && d < 6*time.Second {
				return true
			}
		}
	}
	ends := append(slices.Collect(maps.Values(m.known)), slices.Collect(maps.Values(m.answered))...)
	for _, svc := range m.services {
		ends = append(ends, svc.short)
	}
	for _, until := range slices.DeleteFunc(append(ends, m.short), func(until time.Duration) bool { return until == 0 }) {
		if d := m.now - until; d > -3*time.Second && d < 6*time.Second {
			return true
		}
	}
	for _, e := range m.table {
		for _, limit := range []time.Duration{m.timeout(e.conn), m.quarantineTime(e.conn)} {
			if d := m.idleTime(e.conn) - limit; d > -3*time.Second && d < 6*time.Second {
				return true
			}
		}
	}
	return false
}

// Connections lists both directions of each connection, in no particular order.
func (m *Model) Connections() []report.Connection {
	var all []report.Connection
	for key, e := range m.table {
		c := e.conn
		l := report.Connection{
			Protocol: key.proto, Src: key.src, Dst: key.dst, Reply: e.dir == fromEndpoint, State: c.state(),
			Traffic: c.sides[e.dir].traffic, NewSrc: c.source, NewDst: c.to,
		}
		if l.Reply {
			l.NewSrc, l.NewDst = c.vip, c.client
		}
		all = append(all, l)
	}
	return all
}
