package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// DefaultRoute is a next hop of a default route.
type DefaultRoute struct {
	Gateway   netip.Addr // invalid: none, what leaves by the interface takes that route
	Interface int        // index
}

const serviceEgress = uint16(bpf.TcServiceFlagSERVICE_EGRESS)

// egress is the right of an endpoint to open connections outwards. An address may be an endpoint of several services
// of a protocol that give it: the first of them has it until it gives it up.
type egress struct {
	service  *service
	endpoint *endpoint
	row      bpf.TcEgressEndpoint
}

// putEgress makes the endpoints of a service those that open connections by its address, or none if it gives no such
// right.
func (d *Datapath) putEgress(s *service, t *bpf.ServiceTable, order []*endpoint) error {
	if t == nil || t.Flags&serviceEgress == 0 {
		order = nil
	}
	if len(order) == 0 && !s.egress {
		return nil
	}
	stay := make(map[bpf.TcEgressKey]bool, len(order))
	var errs []error
	for _, e := range order {
		key := egressKey(s, e)
		if !stay[key] {
			errs = append(errs, d.claimEgress(key, egress{s, e, egressRow(s, e, t.SNAT)}))
		}
		stay[key] = true
	}
	for key := range s.egressKeys {
		if !stay[key] {
			errs = append(errs, d.dropEgress(key, s))
		}
	}
	s.egress, s.egressKeys = len(order) > 0, stay
	return errors.Join(append(errs, d.tellEgress())...)
}

func egressKey(s *service, e *endpoint) bpf.TcEgressKey {
	return bpf.TcEgressKey{Addr: bpf.Addr(e.at.Addr()), Protocol: s.key.Protocol}
}

// egressRow has the pool's addresses, or the VIP if none of them is of the endpoint's IP version.
func egressRow(s *service, e *endpoint, pool []bpf.TcIpAddr) bpf.TcEgressEndpoint {
	row := bpf.TcEgressEndpoint{Endpoint: e.id, Service: s.id, Source: s.key.Vip}
	if slices.ContainsFunc(pool, func(a bpf.TcIpAddr) bool { return a.Netip().Is4() == e.at.Addr().Is4() }) {
		row.SourceCount = uint32(len(pool))
	}
	return row
}

func (d *Datapath) claimEgress(key bpf.TcEgressKey, claim egress) error {
	list := d.tables.egress[key]
	i := slices.IndexFunc(list, func(c egress) bool { return c.service == claim.service })
	if i < 0 {
		i = len(list)
		list = append(list, claim)
	}
	list[i] = claim
	d.tables.egress[key] = list
	if i > 0 {
		return nil
	}
	return d.writeEgress(key)
}

func (d *Datapath) dropEgress(key bpf.TcEgressKey, s *service) error {
	list := slices.DeleteFunc(d.tables.egress[key], func(c egress) bool { return c.service == s })
	d.tables.egress[key] = list
	return d.writeEgress(key)
}

// writeEgress has the first of those that claim an address have it.
func (d *Datapath) writeEgress(key bpf.TcEgressKey) error {
	list := d.tables.egress[key]
	if len(list) > 0 {
		if err := d.obj.EgressEndpoints.Put(key, list[0].row); err != nil {
			return fmt.Errorf("write egress endpoint: %w", err)
		}
		return nil
	}
	delete(d.tables.egress, key)
	if err := d.obj.EgressEndpoints.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete egress endpoint: %w", err)
	}
	return nil
}

// tellEgress tells the packet path whether there is any such endpoint, and which routes lead outwards.
func (d *Datapath) tellEgress() error {
	n := uint32(len(d.tables.egress))
	if n == d.tables.egressTold {
		return nil
	}
	var err error
	if d.tables.egressTold == 0 {
		err = d.putDefaultRoutes()
	}
	if err := d.obj.EgressCount.Set(n); err != nil {
		return fmt.Errorf("count egress endpoints: %w", err)
	}
	d.tables.egressTold = n
	return err
}

// RoutesMoved says that default routes may have changed. It costs nothing unless a service uses them.
func (d *Datapath) RoutesMoved() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tables.egressTold == 0 {
		return nil
	}
	return d.putDefaultRoutes()
}

func (d *Datapath) putDefaultRoutes() error {
	if d.cfg.DefaultRoutes == nil {
		return nil
	}
	list, err := d.cfg.DefaultRoutes()
	if err != nil {
		return fmt.Errorf("find default routes: %w", err)
	}
	want := make(map[bpf.TcDefaultRoute]bool, len(list))
	var errs []error
	for _, r := range list {
		key := bpf.TcDefaultRoute{Ifindex: uint32(r.Interface)}
		if r.Gateway.IsValid() {
			key.Gateway = bpf.Addr(r.Gateway)
		}
		want[key] = true
		if err := d.obj.DefaultRoutes.Put(key, uint8(1)); err != nil {
			errs = append(errs, fmt.Errorf("write default route by %s: %w", r.Gateway, err))
		}
	}
	var gone []bpf.TcDefaultRoute
	err = eachRow(d.obj.DefaultRoutes, func(k bpf.TcDefaultRoute, _ uint8) {
		if !want[k] {
			gone = append(gone, k)
		}
	})
	errs = append(errs, err)
	for _, k := range gone {
		if err := d.obj.DefaultRoutes.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete default route: %w", err))
		}
	}
	return errors.Join(errs...)
}

// adoptEgress takes over what an earlier process left, and mends what it did not get to.
func (d *Datapath) adoptEgress() error {
	have := map[bpf.TcEgressKey]bpf.TcEgressEndpoint{}
	if err := eachRow(d.obj.EgressEndpoints, func(k bpf.TcEgressKey, row bpf.TcEgressEndpoint) { have[k] = row }); err != nil {
		return fmt.Errorf("read egress endpoints: %w", err)
	}
	var errs []error
	for _, s := range d.tables.services {
		if !s.egress {
			continue
		}
		s.egressKeys = map[bpf.TcEgressKey]bool{}
		for _, e := range s.order {
			key := egressKey(s, e)
			s.egressKeys[key] = true
			list := append(d.tables.egress[key], egress{s, e, egressRow(s, e, nil)}) // the pool comes with the service
			claim := &list[len(list)-1]
			if row, ok := have[key]; ok && row.Service == s.id {
				claim.row = row
				list[0], *claim = *claim, list[0] // it has had it
			}
			d.tables.egress[key] = list
		}
	}
	for key := range d.tables.egress {
		errs = append(errs, d.writeEgress(key))
	}
	for key := range have {
		if len(d.tables.egress[key]) == 0 {
			errs = append(errs, d.writeEgress(key))
		}
	}
	return errors.Join(append(errs, d.tellEgress())...)
}
