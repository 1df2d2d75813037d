package model

import "loxilb/internal/lb"

// The rules of half-open connections: TCP and the other protocols each have a share of the table
// for connections that are not confirmed. A service may use half of a share.

// Connections and HalfOpen are the size of the table, and the percentage of it that is a share.
// Both are small, so tests exhaust them.
const (
	Connections = 1024
	HalfOpen    = 1
)

func (c *connection) halfOpen() bool { return !c.resting && !c.open }

// halfOpenExceeds reports whether half-open connections exceed the given part of the machine's
// share, or of the service's half of it.
func (m *Model) halfOpenExceeds(svc *service, proto lb.Protocol, part float64) bool {
	machine, service := m.halfOpen(svc, proto, func(*connection) bool { return true })
	return exceeds(machine, service, part)
}

func exceeds(machine, service int, part float64) bool {
	share := part * Connections * HalfOpen / 100
	return float64(machine) >= share || float64(service) >= share/2
}

// halfOpen counts the half-open connections of TCP, or of all other protocols, in total and of a
// service.
func (m *Model) halfOpen(svc *service, proto lb.Protocol, counts func(*connection) bool) (machine, service int) {
	for _, e := range m.table {
		if e.dir != fromClient || !e.conn.halfOpen() || !counts(e.conn) {
			continue
		}
		if (e.conn.proto == lb.TCP) == (proto == lb.TCP) {
			machine++
		}
		if e.conn.service == svc {
			service++
		}
	}
	return machine, service
}

// HalfOpen counts the half-open connections of TCP and of all other protocols.
func (m *Model) HalfOpen() (tcp, others int64) {
	for _, e := range m.table {
		switch {
		case e.dir != fromClient || !e.conn.halfOpen():
		case e.conn.proto == lb.TCP:
			tcp++
		default:
			others++
		}
	}
	return tcp, others
}

// hasShortTimeout reports whether pressure shortens the timeout of the connection.
func (m *Model) hasShortTimeout(c *connection) bool {
	return c.halfOpen() && (m.halfOpenExceeds(c.service, c.proto, 0.25) || c.snat && m.now < m.short)
}

// SweepsInOrder reports whether the order of a sweep determines what it removes, since it may
// relieve pressure before its end.
func (m *Model) SweepsInOrder() bool {
	stays := func(c *connection) bool { return !m.isOver(c) && (c.proto == lb.TCP || !c.isEndpointRemoved()) }
	for _, e := range m.table {
		if m.hasShortTimeout(e.conn) && m.isOver(e.conn) {
			if machine, service := m.halfOpen(e.conn.service, e.conn.proto, stays); !exceeds(machine, service, 0.25) {
				return true
			}
		}
	}
	return false
}
