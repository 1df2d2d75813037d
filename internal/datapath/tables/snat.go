package tables

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// sourceRow is an endpoint's source as the map has it: zero for none, which no address is.
func sourceRow(a netip.Addr) bpf.TcIpAddr {
	if !a.IsValid() || a == netip.IPv6Unspecified() {
		return bpf.TcIpAddr{}
	}
	return bpf.Addr(a)
}

// sourceEndpoint says where new connections to the endpoint come from. Those that are there keep what they have.
func (t *Tables) sourceEndpoint(e *endpoint, source bpf.TcIpAddr) error {
	if sourceRow(e.source) == source {
		return nil
	}
	e.source = source.Netip()
	return t.writeEndpoint(e, 0)
}

// putSNAT writes a service's own source addresses, before the row that counts them.
func (t *Tables) putSNAT(s *service, list []bpf.TcIpAddr) error {
	for i, a := range list {
		s.snat = max(s.snat, i+1)
		if err := t.maps.SnatSources.Put(bpf.TcSnatSourceKey{Service: s.id, Place: uint32(i)}, a); err != nil {
			return fmt.Errorf("write source address: %w", err)
		}
	}
	return nil
}

// trimSNAT removes those that the service has no more.
func (t *Tables) trimSNAT(s *service, keep int) error {
	for ; s.snat > keep; s.snat-- {
		err := t.maps.SnatSources.Delete(bpf.TcSnatSourceKey{Service: s.id, Place: uint32(s.snat - 1)})
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete source address: %w", err)
		}
	}
	return nil
}

// SourcePorts is how many source ports connections have, or had a moment ago, of one of our addresses towards an
// endpoint.
func (t *Tables) SourcePorts(source netip.Addr, endpoint netip.AddrPort, protocol uint8) (uint32, error) {
	var u bpf.TcSnatUsage
	err := t.maps.SnatUsages.Lookup(bpf.TcSnatPair{
		Source: bpf.Addr(source), Endpoint: bpf.Addr(endpoint.Addr()), Port: bpf.Port(endpoint.Port()), Protocol: protocol,
	}, &u)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read source ports: %w", err)
	}
	return u.Count, nil
}
