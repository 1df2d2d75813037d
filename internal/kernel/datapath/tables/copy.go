package tables

import (
	"net/netip"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// Origin describes an endpoint to other nodes, which do not know its id.
type Origin struct {
	Endpoint netip.AddrPort
	Mark     uint32 // of its service
	Opens    bool   // it opens connections itself
}

// Origin returns the description of an endpoint. It returns false if none has this id.
func (t *Tables) Origin(id uint32) (Origin, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.endpoint(id)
	if e == nil {
		return Origin{}, false
	}
	return Origin{e.at(), e.service.key.Mark, opensConnections(e.service.row.Flags)}, true
}

// CopyPlace is the place of a copy in this node's tables.
type CopyPlace struct {
	Endpoint, Service uint32 // ids
	PersistPrefix     uint8  // how many bits of its address identify a client to persist; 0: none
	NoXDP             bool   // XDP must not forward its packets
}

// CopyPlace returns the place of a copy. It returns false if its service or endpoint does not exist
// here. A removed endpoint exists until its last connection has ended, but gets no further clients.
func (t *Tables) CopyPlace(c *report.ConnectionCopy) (at CopyPlace, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.serviceOfCopy(c)
	if s == nil {
		return at, false
	}
	t.hasCopies.Store(true)
	at.Service, at.NoXDP = s.id, s.row.Flags&uint16(bpf.TcServiceFlagSERVICE_NO_XDP) != 0
	for _, e := range s.order {
		if e.matchesCopy(s, c) {
			at.Endpoint, at.PersistPrefix = e.id, s.persistPrefix()
			return at, true
		}
	}
	for _, e := range s.ending {
		if e.matchesCopy(s, c) {
			at.Endpoint = e.id
			return at, true
		}
	}
	return at, false
}

// persistPrefix returns how many bits of its address identify a client; 0: the service remembers
// none.
func (s *service) persistPrefix() uint8 {
	if bpf.TcAlgorithm(s.row.Algorithm) != bpf.TcAlgorithmALGORITHM_PERSIST {
		return 0
	}
	return uint8(s.row.PersistPrefix)
}

// matchesCopy reports whether the service's connections to the endpoint have the copy's endpoint
// address and port.
func (e *endpoint) matchesCopy(s *service, c *report.ConnectionCopy) bool {
	if e.addr.Netip() != c.Endpoint.Addr() {
		return false
	}
	port := bpf.Port(e.port)
	if e.has(endpointShift) && c.Traits&uint8(bpf.TcConnectionTraitCONN_ONE_WAY) == 0 {
		port += c.VIP.Port() - bpf.Port(s.key.Port) // modulo 65,536, as the packet path adds it
	}
	return port == c.Endpoint.Port()
}

// serviceOfCopy finds the service of a copy as a packet would: by its port, by a range of ports,
// and on every local address.
func (t *Tables) serviceOfCopy(c *report.ConnectionCopy) *service {
	for _, vip := range [...]netip.Addr{c.VIP.Addr(), anyOf(c.VIP.Addr())} {
		key := bpf.TcServiceKey{Vip: bpf.Addr(vip), Port: bpf.Port(c.VIP.Port()), Protocol: uint8(c.Protocol), Mark: c.Mark}
		if s := t.serviceAt(key); s != nil {
			return s
		}
		if s := t.rangeAt(key, c.VIP.Port()); s != nil {
			return s
		}
	}
	return nil
}

// serviceAt returns the service with a key, which may be that of a secondary VIP.
func (t *Tables) serviceAt(key bpf.TcServiceKey) *service {
	if s := t.services[key]; s != nil {
		return s
	}
	return t.secondary[key]
}

// rangeAt returns the service with the smallest range that has a port.
func (t *Tables) rangeAt(key bpf.TcServiceKey, port uint16) (found *service) {
	at := keyOfRanges(key)
	for _, first := range t.ranges[at] {
		at.Port = first
		s := t.serviceAt(at)
		if s == nil || port < bpf.Port(first) || port > s.portMax {
			continue
		}
		if found == nil || s.portMax-bpf.Port(first) < found.portMax-bpf.Port(found.key.Port) {
			found = s
		}
	}
	return found
}

// indexRange adds a range of ports to ranges, or removes it if by is -1. The index avoids comparing
// each copy with all services.
func (t *Tables) indexRange(key bpf.TcServiceKey, by int) {
	at := keyOfRanges(key)
	list := slices.DeleteFunc(t.ranges[at], func(first uint16) bool { return first == key.Port })
	if by > 0 {
		list = append(list, key.Port)
	}
	if t.ranges[at] = list; len(list) == 0 {
		delete(t.ranges, at)
	}
}

// keyOfRanges returns the key by which ranges are found: a service's, without its port.
func keyOfRanges(key bpf.TcServiceKey) bpf.TcServiceKey {
	key.Kind, key.Port = uint8(bpf.TcServiceKindSERVICE_RANGE), 0
	return key
}

// anyOf returns the unspecified address of an address's IP version: the VIP of services on every
// local address.
func anyOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
