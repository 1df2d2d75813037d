package model

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb"
	"loxilb/test/packet/lab"
)

// client is a service's record of a client with select=persist.
type client struct {
	endpoint *endpoint
	seen     time.Duration
}

// places returns what new connections go through: one round, or the table of a hash.
func places(s lb.Service, endpoints []*endpoint) []*endpoint {
	if s.Algorithm != lb.Hash && s.Algorithm != lb.Persist {
		return layOutRound(s, endpoints)
	}
	var nodes []compile.MaglevNode
	for _, e := range s.Endpoints {
		addr := e.Addr.As16()
		nodes = append(nodes, compile.MaglevNode{Name: string(addr[:]) + string([]byte{byte(e.Port >> 8), byte(e.Port)}), Weight: uint32(e.Weight)})
	}
	var table []*endpoint
	for _, i := range compile.MaglevTable(lab.HashSeed, nodes) {
		table = append(table, endpoints[i])
	}
	return table
}

// place returns where in s.turns a new connection looks first.
func (m *Model) place(s *service, key tuple) uint64 {
	switch s.Algorithm {
	case lb.Hash:
		h := hashAddr(hashAddr(lab.HashSeed, key.src.Addr()), key.dst.Addr())
		h = hashWord(h, uint32(bits.ReverseBytes16(key.src.Port()))<<16|uint32(bits.ReverseBytes16(key.dst.Port())), uint32(key.proto))
		return hashEnd(h)
	case lb.Persist:
		return hashEnd(hashAddr(lab.HashSeed, s.clientOf(key)))
	case lb.LeastConnections:
		return m.least(s)
	case lb.Random:
		return 0 // the generator gives these services only one endpoint
	}
	s.next++
	return uint64(s.next - 1)
}

// least returns the place with the fewest connections in relation to its weight. Of equal places,
// it returns the first one after the last choice.
func (m *Model) least(s *service) uint64 {
	first, count := uint64(s.next), uint64(len(s.round))
	best := first % count
	weight := func(e *endpoint) uint64 { return uint64(s.Endpoints[slices.Index(s.endpoints, e)].Weight) }
	for i := range count {
		place := (first + i) % count
		if e, b := s.round[place], s.round[best]; m.statsOf(e).Active*weight(b) < m.statsOf(b).Active*weight(e) {
			best = place
		}
	}
	s.next = int(best) + 1
	return best
}

func (s *service) clientOf(key tuple) netip.Addr {
	if s.PersistPrefix == 0 {
		return key.src.Addr()
	}
	return netip.PrefixFrom(key.src.Addr(), int(s.PersistPrefix)).Masked().Addr()
}

// remembered returns the endpoint that the client must get, or nil if any endpoint will do.
func (m *Model) remembered(s *service, key tuple) *endpoint {
	c, ok := s.clients[s.clientOf(key)]
	if s.Algorithm != lb.Persist || !ok || m.now-c.seen > s.persistTimeout() {
		return nil
	}
	i := slices.Index(s.endpoints, c.endpoint)
	if i < 0 || s.Endpoints[i].Weight == 0 {
		return nil
	}
	c.seen = m.now
	return c.endpoint
}

func (s *service) remember(key tuple, e *endpoint, now time.Duration) {
	if s.clients == nil {
		s.clients = map[netip.Addr]*client{}
	}
	s.clients[s.clientOf(key)] = &client{e, now}
}

func (s *service) persistTimeout() time.Duration {
	if s.PersistTimeout == 0 {
		return 3 * time.Hour
	}
	return s.PersistTimeout
}

// forget removes expired clients, as the sweep does.
func (s *service) forget(now time.Duration) {
	for a, c := range s.clients {
		if s.Algorithm != lb.Persist || now-c.seen > s.persistTimeout() || !slices.Contains(s.endpoints, c.endpoint) {
			delete(s.clients, a)
		}
	}
}

func hashWord(h uint64, high, low uint32) uint64 {
	h = (h ^ (uint64(high)<<32 | uint64(low))) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

func hashAddr(h uint64, a netip.Addr) uint64 {
	b := a.As16()
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	return hashWord(hashWord(h, word(0), word(1)), word(2), word(3))
}

func hashEnd(h uint64) uint64 {
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>29
}
