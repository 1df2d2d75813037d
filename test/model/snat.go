package model

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb"
)

// How long a source port is reserved after its connection: shorter if the connection was half-open
// and few ports are free.
const (
	rest      = 30 * time.Second
	restShort = 3 * time.Second
)

// Ports is the number of source ports of an address of the load balancer towards an endpoint. The
// last eighth, one port, is reserved for known clients.
const Ports = 3

// shortTime is how long source ports count as short after a pool had only reserved ports.
const shortTime = 12 * time.Second

// answerBypasses reports whether the endpoint's answer to the client would bypass the load
// balancer: both are in one network.
func (c *connection) answerBypasses() bool {
	for _, network := range []string{"192.168.1.0/24", "2001:db8:2::/64"} {
		if p := netip.MustParsePrefix(network); p.Contains(c.client.Addr()) && p.Contains(c.to.Addr()) {
			return true
		}
	}
	return false
}

// choosePort gives the connection a source address of the load balancer: the VIP, its address in
// the endpoint's network, or an address of the service.
func (m *Model) choosePort(c *connection) (reason string) {
	addr := c.vip.Addr()
	itsOwn := c.service.Mode == lb.ModeDefault && c.client.Addr() == c.to.Addr()
	if c.service.Mode != lb.ModeFullNAT && !itsOwn {
		addr = netip.MustParseAddr("192.168.1.254")
		if addr.Is4() != c.to.Addr().Is4() {
			addr = netip.MustParseAddr("2001:db8:2::fe")
		}
	}
	if n := uint32(len(c.service.SNAT)); n > 0 {
		client := c.client.Addr().As16()
		addr = c.service.SNAT[(binary.BigEndian.Uint32(client[12:])+uint32(c.client.Port()))%n]
	}
	return m.choosePortAt(c, addr)
}

// choosePortAt gives the connection a port at an address. The client's if that is free, else any.
func (m *Model) choosePortAt(c *connection, addr netip.Addr) (reason string) {
	c.snat = true
	c.source = netip.AddrPortFrom(addr, c.client.Port())
	if reason := m.usePool(c); reason != "" {
		return reason
	}
	itself := c.reply() == tuple{c.proto, c.client, c.vip}
	if c.client.Port() >= 1024 && !itself && m.vacate(c.reply(), c.client) {
		return ""
	}
	c.source = netip.AddrPortFrom(addr, m.drawnPort)
	for port := uint16(50000); m.drawnPort == 0; port++ {
		c.source = netip.AddrPortFrom(addr, port)
		if _, taken := m.table[c.reply()]; !taken {
			return ""
		}
	}
	if _, taken := m.table[c.reply()]; taken || m.drawnPort < 1024 {
		return "a source port that is not free"
	}
	return ""
}

// usePool reports why the connection gets no port of the pool of its source address, "" if it may
// have one.
func (m *Model) usePool(c *connection) (reason string) {
	if !slices.Contains(ownAddresses(), c.source.Addr()) {
		return "" // it has 64,000
	}
	used := 0
	for key, e := range m.table {
		if e.dir == fromEndpoint && e.conn.snat && key.proto == c.reply().proto && key.src == c.to && key.dst.Addr() == c.source.Addr() {
			used++
		}
	}
	if used < Ports-1 {
		return ""
	}
	m.short, c.service.short = m.now+shortTime, m.now+shortTime
	switch known := m.isKnown(tuple{c.proto, c.client, c.vip}); {
	case !known && c.proto == lb.TCP && c.service.SynProtect != lb.SynProtectOff:
		return "challenged"
	case !known:
		return "unknown-source"
	case used >= Ports:
		return "snat-ports-exhausted"
	}
	return ""
}

// lacksPorts reports whether a connection was refused because a pool of source ports has none for
// it.
func lacksPorts(reason string) bool {
	return reason == "unknown-source" || reason == "snat-ports-exhausted"
}

// endpointReason returns the reason for which an endpoint counts a refusal, if it does.
func endpointReason(reason string) string {
	if reason == "unknown-source" {
		return ""
	}
	return reason
}

// vacate reports whether a client may use the tuple of replies. It may if the tuple is free, or if
// its connection is over and was the same client's or its port has rested.
func (m *Model) vacate(reply tuple, client netip.AddrPort) bool {
	old, taken := m.table[reply]
	if !taken {
		return true
	}
	if old.conn.snat && old.conn.client != client {
		if !m.isOver(old.conn) {
			return false
		}
	} else if !m.isExpired(old.conn) && !old.conn.closed() {
		return false
	}
	m.remove(old.conn)
	return true
}

// leave ends an expired connection that a packet has found. Its source port stays reserved.
func (m *Model) leave(c *connection) {
	if c.snat {
		m.quarantinePort(c, c.closed())
	} else {
		m.remove(c)
	}
}

// end ends a connection whose endpoint was removed.
func (m *Model) end(c *connection) {
	if c.snat {
		m.quarantinePort(c, true)
	} else {
		m.remove(c)
	}
}

// quarantinePort quarantines the source port of an ended connection, from its last packet or from
// now.
func (m *Model) quarantinePort(c *connection, fromNow bool) {
	if c.resting {
		return
	}
	delete(m.table, tuple{c.proto, c.client, c.vip})
	if fromNow {
		c.sides[fromEndpoint].lastSeen = m.now
	}
	c.sides[fromEndpoint].reset, c.resting = true, true
}

// quarantineTime returns how long the connection may be silent before its port may be reused.
func (m *Model) quarantineTime(c *connection) time.Duration {
	rest := rest
	if !c.open && c.snat && m.now < m.short {
		rest = restShort
	}
	switch {
	case c.resting:
		return rest
	case c.snat:
		return max(m.timeout(c), rest)
	}
	return m.timeout(c)
}

// isOver reports whether the connection has expired and its port has left quarantine.
func (m *Model) isOver(c *connection) bool { return m.idleTime(c) > m.quarantineTime(c) }
