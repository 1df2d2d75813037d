package model

import (
	"net/netip"

	"loxilb/internal/lb"
)

// The rules of limits. Active connections in the table count for their service and client, except
// for connections of an endpoint to itself. Packet scripts test limits of rates, since the model's
// clock stands still.

// isLimited reports whether the service or the client has reached its limit of connections.
func (m *Model) isLimited(svc *service, client netip.Addr) bool {
	all, own := uint32(0), uint32(0)
	for _, e := range m.table {
		if e.dir != fromClient || e.conn.service != svc || e.conn.resting || !e.conn.active() || e.conn.client.Addr() == e.conn.endpoint.addr.Addr() {
			continue
		}
		all++
		if clientOf(e.conn.client.Addr()) == clientOf(client) {
			own++
		}
	}
	return svc.MaxConnections > 0 && all >= svc.MaxConnections || svc.ClientConnections > 0 && own >= svc.ClientConnections
}

// limitsOf returns the limits of a service. They depend only on the key, since a new limit does not
// count earlier connections.
func limitsOf(k lb.Key) (l lb.ConnectionLimits) {
	switch (int(k.Port) + int(k.VIP.AsSlice()[k.VIP.BitLen()/8-1]) + int(k.Protocol)) % 5 {
	case 0:
		l.MaxConnections = 4
	case 1:
		l.ClientConnections = 2
	}
	return l
}
