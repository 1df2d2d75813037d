package model

import (
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// The effects of a SYN in a connection that the endpoint has answered.
const (
	redialGoes  = iota // it is forwarded in the connection
	redialOpens        // it opens a new connection
	redialDrops
)

const (
	lostSilence = 3 * time.Second        // an endpoint that has left must have been silent for it
	redialWait  = 750 * time.Millisecond // silence of a live endpoint since the previous SYN
	redialKept  = 130 * time.Second
)

// byClient reports whether the client's address alone chooses the endpoint.
func (s *service) byClient() bool { return s.Algorithm == lb.Hash || s.Algorithm == lb.Persist }

// isPlain reports whether a SYN is certain to reach the endpoint's TCP.
func isPlain(p *pkt.Packet) bool {
	return p.Num(pkt.TTL) >= 32 && p.Num(pkt.Len) == 0 && p.Value(pkt.Sum).Text != "bad" && !p.Has(pkt.Ext) && !p.Has(pkt.IPOptions)
}

func (m *Model) redial(c *connection, p *pkt.Packet) int {
	client, lastSeen := m.now-c.sides[fromClient].lastSeen, m.now-c.sides[fromEndpoint].lastSeen
	if c.oneWay {
		lastSeen = client
	}
	if c.isEndpointRemoved() {
		if m.passed(lastSeen, lostSilence) {
			return redialOpens
		}
		return redialDrops
	}
	if c.oneWay || !c.open {
		return redialGoes
	}
	since := m.now - c.synAt
	if c.hasSYNAt {
		if !m.passed(since, redialWait) {
			return redialGoes
		}
		if since <= redialKept && client > since && lastSeen > since {
			return redialOpens
		}
	}
	if isPlain(p) && m.passed(client, redialWait) && m.passed(lastSeen, redialWait) {
		c.synAt, c.hasSYNAt = m.now, true
	}
	return redialGoes
}

// passed reports whether a time is over. The program's clock advances while the model's stands
// still; if that could change the result, the model is in doubt.
func (m *Model) passed(d, limit time.Duration) bool {
	if d < limit && d+time.Since(m.began) >= limit {
		m.doubt = true
	}
	return d >= limit
}
