package model

import (
	"cmp"
	"time"

	"loxilb/internal/lb"
)

// timeout returns the idle timeout of the connection.
func (m *Model) timeout(c *connection) time.Duration {
	idle := c.service.IdleTimeout
	switch {
	case m.hasShortTimeout(c):
		return 3 * time.Second
	case c.proto == lb.UDP && c.replied && c.open && c.snat && m.now < m.short:
		return min(cmp.Or(idle, 300*time.Second), 30*time.Second)
	case c.proto == lb.UDP && c.replied && c.open:
		return cmp.Or(idle, 300*time.Second)
	case c.proto == lb.UDP && c.replied:
		return cmp.Or(idle, 30*time.Second)
	case c.proto == lb.ICMP && c.open && c.snat && m.now < m.short:
		return min(cmp.Or(idle, 3*time.Second), 3*time.Second)
	case c.proto != lb.TCP && idle > 0:
		return min(idle, 30*time.Second)
	case c.proto != lb.TCP:
		return 30 * time.Second
	case c.closed():
		return 10 * time.Second
	case c.oneWay && c.sides[fromClient].fin || c.sides[0].fin && c.sides[1].fin || c.sides[fromEndpoint].fin && !c.open:
		return 120 * time.Second
	case c.sides[0].fin || c.sides[1].fin:
		return max(cmp.Or(idle, 7440*time.Second), 120*time.Second)
	case !c.open:
		return 60 * time.Second
	}
	return cmp.Or(idle, 7440*time.Second)
}

func (m *Model) idleTime(c *connection) time.Duration {
	if c.resting {
		return m.now - c.sides[fromEndpoint].lastSeen
	}
	return m.now - max(c.sides[0].lastSeen, c.sides[1].lastSeen)
}

func (m *Model) isExpired(c *connection) bool { return m.idleTime(c) > m.timeout(c) }
