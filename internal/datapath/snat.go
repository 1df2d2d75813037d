package datapath

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
func (d *Datapath) sourceEndpoint(e *endpoint, source bpf.TcIpAddr) error {
	if sourceRow(e.source) == source {
		return nil
	}
	e.source = source.Netip()
	return d.writeEndpoint(e, 0)
}

// putSNAT writes a service's own source addresses, before the row that counts them.
func (d *Datapath) putSNAT(s *service, list []bpf.TcIpAddr) error {
	for i, a := range list {
		s.snat = max(s.snat, i+1)
		if err := d.obj.SnatSources.Put(bpf.TcSnatSourceKey{Service: s.id, Place: uint32(i)}, a); err != nil {
			return fmt.Errorf("write source address: %w", err)
		}
	}
	return nil
}

// trimSNAT removes those that the service has no more.
func (d *Datapath) trimSNAT(s *service, keep int) error {
	for ; s.snat > keep; s.snat-- {
		err := d.obj.SnatSources.Delete(bpf.TcSnatSourceKey{Service: s.id, Place: uint32(s.snat - 1)})
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete source address: %w", err)
		}
	}
	return nil
}

// countHost counts the services of every local address: while there is none, packets pay nothing for them.
func (d *Datapath) countHost(key bpf.TcServiceKey, by int) error {
	if !key.Vip.Netip().IsUnspecified() {
		return nil
	}
	d.tables.hosts = uint32(int(d.tables.hosts) + by)
	if err := d.obj.HostServices.Set(d.tables.hosts); err != nil {
		return fmt.Errorf("count services of every address: %w", err)
	}
	return d.sockets.tell(&d.tables)
}

// adoptSNAT reads what an earlier process left.
func (d *Datapath) adoptSNAT() error {
	for key := range d.tables.services {
		if err := d.countHost(key, 1); err != nil {
			return err
		}
	}
	var key bpf.TcIpAddr
	var one uint8
	rows := d.obj.LocalAddresses.Iterate()
	for rows.Next(&key, &one) {
		d.tables.local[key] = struct{}{}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read local addresses: %w", err)
	}
	d.recountLocal()
	return d.followLocal()
}

// SetLocalAddresses makes these the addresses that services of every local address have.
func (d *Datapath) SetLocalAddresses(list []netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	want := make(map[bpf.TcIpAddr]struct{}, len(list))
	var errs []error
	for _, a := range list {
		key := bpf.Addr(a)
		want[key] = struct{}{}
		if _, ok := d.tables.local[key]; ok {
			continue
		}
		if err := d.obj.LocalAddresses.Put(key, uint8(1)); err != nil {
			errs = append(errs, fmt.Errorf("write local address %s: %w", a, err))
			continue
		}
		d.tables.local[key] = struct{}{}
	}
	for key := range d.tables.local {
		if _, ok := want[key]; ok {
			continue
		}
		if err := d.obj.LocalAddresses.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete local address %s: %w", key.Netip(), err))
			continue
		}
		delete(d.tables.local, key)
	}
	d.recountLocal()
	return errors.Join(append(errs, d.followLocal())...)
}

// SourcePorts is how many source ports connections have, or had a moment ago, of one of our addresses towards an
// endpoint.
func (d *Datapath) SourcePorts(source netip.Addr, endpoint netip.AddrPort, protocol uint8) (uint32, error) {
	var u bpf.TcSnatUsage
	err := d.obj.SnatUsages.Lookup(bpf.TcSnatPair{
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
