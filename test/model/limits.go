package model

import (
	"net/netip"

	"loxilb/internal/lb"
)

// The rules of limits: open connections of a service, and of a client of it, are those that are in
// the table and active, but for those of an endpoint with itself. Rates are left to packet scripts:
// the model's clock stands still.

// limited reports whether the service, or the client, has as many open connections as it may.
func (m *Model) limited(svc *service, client netip.Addr) bool {
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

// limitsOf are always the same for a service of that key: what is counted begins when a limit does.
func limitsOf(k lb.Key) (l lb.ConnectionLimits) {
	switch (int(k.Port) + int(k.VIP.AsSlice()[k.VIP.BitLen()/8-1]) + int(k.Protocol)) % 5 {
	case 0:
		l.MaxConnections = 4
	case 1:
		l.ClientConnections = 2
	}
	return l
}
