package tables

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// egress is the permission of an endpoint to open connections outwards. Several services of a
// protocol may grant it to one address: the first claim applies until its service drops it.
type egress struct {
	service *service
	row     bpf.TcEgressEndpoint
}

// egressClaims returns the claims of a service's endpoints, by address.
func egressClaims(s *service, want *bpf.ServiceTable, order []*endpoint) map[bpf.TcEgressKey]egress {
	if want.Flags&serviceEgress == 0 {
		return nil
	}
	claims := make(map[bpf.TcEgressKey]egress, len(order))
	for _, e := range order {
		key := egressKey(s, e)
		if _, ok := claims[key]; !ok {
			claims[key] = egress{s, egressRow(s, e, want.SNAT)}
		}
	}
	return claims
}

// putEgress makes these the claims of a service.
func (t *Tables) putEgress(s *service, claims map[bpf.TcEgressKey]egress, undo *undoLog) error {
	was := s.extras().claims
	if len(claims)+len(was) == 0 {
		return nil
	}
	undo.add(func() error { return t.putEgress(s, was, &undoLog{}) })
	extra := s.makeExtras()
	extra.claims = maps.Clone(was)
	if extra.claims == nil {
		extra.claims = make(map[bpf.TcEgressKey]egress, len(claims))
	}
	for key, claim := range claims {
		extra.claims[key] = claim
		if err := t.claimEgress(key, claim); err != nil {
			return err
		}
	}
	for key := range was {
		if _, stays := claims[key]; stays {
			continue
		}
		if err := t.dropEgress(key, s); err != nil {
			return err
		}
	}
	extra.claims = claims
	return t.countEgress()
}

func egressKey(s *service, e *endpoint) bpf.TcEgressKey {
	return bpf.TcEgressKey{Addr: e.addr, Protocol: s.key.Protocol}
}

// egressRow has the pool's addresses, or the VIP if the pool has no address of the endpoint's IP
// version.
func egressRow(s *service, e *endpoint, pool []bpf.TcIpAddr) bpf.TcEgressEndpoint {
	row := bpf.TcEgressEndpoint{Endpoint: e.id, Service: s.id, Source: s.key.Vip}
	if slices.ContainsFunc(pool, func(a bpf.TcIpAddr) bool { return a.Netip().Is4() == e.at().Addr().Is4() }) {
		row.SourceCount = uint32(len(pool))
	}
	return row
}

func (t *Tables) claimEgress(key bpf.TcEgressKey, claim egress) error {
	list := t.egress[key]
	i := slices.IndexFunc(list, func(c egress) bool { return c.service == claim.service })
	if i < 0 {
		i = len(list)
		list = append(list, claim)
	}
	list[i] = claim
	t.egress[key] = list
	if i > 0 {
		return nil
	}
	return t.writeEgress(key)
}

func (t *Tables) dropEgress(key bpf.TcEgressKey, s *service) error {
	list := slices.DeleteFunc(t.egress[key], func(c egress) bool { return c.service == s })
	t.egress[key] = list
	return t.writeEgress(key)
}

// writeEgress assigns an address to its first claim.
func (t *Tables) writeEgress(key bpf.TcEgressKey) error {
	list := t.egress[key]
	if len(list) > 0 {
		if err := t.arrays.EgressEndpoints.Make(); err != nil {
			return err
		}
		if err := t.arrays.EgressEndpoints.Table().Put(key, list[0].row); err != nil {
			return fmt.Errorf("write egress endpoint: %w", asErrFull(err))
		}
		return nil
	}
	delete(t.egress, key)
	table := t.arrays.EgressEndpoints.Table()
	if table == nil {
		return nil
	}
	if err := rows.Delete(table, key); err != nil {
		return fmt.Errorf("delete egress endpoint: %w", err)
	}
	return nil
}

// countEgress sets whether endpoints open TCP connections: by egress, or data connections of FTP.
// The packet path then looks up which side has opened a handshake.
func (t *Tables) countEgress() error {
	n := uint32(len(t.egress)) + t.ftpServices
	if n == t.egressCount {
		return nil
	}
	if err := t.vars.EgressCount.Set(n); err != nil {
		return fmt.Errorf("count egress endpoints: %w", err)
	}
	t.egressCount = n
	return nil
}

// adoptEgress adopts the rows of an earlier process, and completes unfinished changes.
func (t *Tables) adoptEgress() error {
	have := map[bpf.TcEgressKey]bpf.TcEgressEndpoint{}
	if table := t.arrays.EgressEndpoints.Table(); table != nil {
		if err := rows.Each(table, func(k bpf.TcEgressKey, row bpf.TcEgressEndpoint) { have[k] = row }); err != nil {
			return fmt.Errorf("read egress endpoints: %w", err)
		}
	}
	var errs []error
	for _, s := range t.services {
		if s.row.Flags&serviceEgress == 0 {
			continue
		}
		s.makeExtras().claims = map[bpf.TcEgressKey]egress{}
		for _, e := range s.order {
			key := egressKey(s, e)
			list := append(t.egress[key], egress{s, egressRow(s, e, nil)}) // the pool comes with the service
			claim := &list[len(list)-1]
			if row, ok := have[key]; ok && row.Service == s.id {
				claim.row = row
				list[0], *claim = *claim, list[0] // this claim applied before
			}
			t.egress[key] = list
		}
	}
	for key := range t.egress {
		errs = append(errs, t.writeEgress(key))
	}
	for key := range have {
		if len(t.egress[key]) == 0 {
			errs = append(errs, t.writeEgress(key))
		}
	}
	return errors.Join(append(errs, t.countEgress())...)
}
