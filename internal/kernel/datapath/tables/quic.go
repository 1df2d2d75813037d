package tables

import (
	"errors"
	"fmt"
	"maps"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// quic describes a service's QUIC connection IDs.
type quic struct {
	configs map[bpf.TcQuicConfigKey]bpf.TcQuicConfig
	servers map[bpf.TcQuicServerKey]uint32 // the endpoints' ids
}

// quicOf returns the rows of a service. order has its endpoints in the table's order.
func quicOf(s *service, want *bpf.ServiceTable, order []*endpoint) (q quic) {
	if len(want.QUIC) == 0 {
		return q
	}
	q = quic{map[bpf.TcQuicConfigKey]bpf.TcQuicConfig{}, map[bpf.TcQuicServerKey]uint32{}}
	for _, c := range want.QUIC {
		q.configs[bpf.TcQuicConfigKey{Service: s.id, Config: c.Number}] = c.Row
	}
	for i, e := range want.Endpoints {
		if e.ServerID != (bpf.ServerID{}) {
			q.servers[bpf.TcQuicServerKey{Id: e.ServerID, Service: s.id}] = order[i].id
		}
	}
	return q
}

func (q *quic) isEmpty() bool { return len(q.configs)+len(q.servers) == 0 }

// putQUIC makes these the rows of a service.
func (t *Tables) putQUIC(s *service, want quic, undo *undoLog) error {
	was := s.extras().quic
	if want.isEmpty() && was.isEmpty() {
		return nil
	}
	for _, a := range []*rows.Array{t.arrays.QUICConfigs, t.arrays.QUICServers} {
		if err := a.Make(); err != nil {
			return err
		}
	}
	undo.add(func() error { return t.putQUIC(s, was, &undoLog{}) })
	have := &s.makeExtras().quic
	*have = quic{maps.Clone(was.configs), maps.Clone(was.servers)}
	if have.configs == nil {
		have.configs, have.servers = map[bpf.TcQuicConfigKey]bpf.TcQuicConfig{}, map[bpf.TcQuicServerKey]uint32{}
	}
	_, failed := rows.Sync(t.arrays.QUICServers.Table(), have.servers, want.servers)
	_, err := rows.Sync(t.arrays.QUICConfigs.Table(), have.configs, want.configs)
	if err = errors.Join(failed, err); err != nil {
		return fmt.Errorf("write server IDs: %w", asErrFull(err))
	}
	return nil
}

// adoptQUIC reads the rows of an earlier process, and removes rows of deleted services.
func (t *Tables) adoptQUIC(byID map[uint32]*service) error {
	var errs []error
	rowsOf := func(id uint32) *quic {
		s := byID[id]
		if s == nil || s.deleted {
			return nil
		}
		q := &s.makeExtras().quic
		if q.configs == nil {
			*q = quic{map[bpf.TcQuicConfigKey]bpf.TcQuicConfig{}, map[bpf.TcQuicServerKey]uint32{}}
		}
		return q
	}
	if m := t.arrays.QUICConfigs.Table(); m != nil {
		all, err := rows.Read[bpf.TcQuicConfigKey, bpf.TcQuicConfig](m)
		errs = append(errs, err)
		for key, row := range all {
			if q := rowsOf(key.Service); q != nil {
				q.configs[key] = row
				continue
			}
			errs = append(errs, rows.Delete(m, key))
		}
	}
	if m := t.arrays.QUICServers.Table(); m != nil {
		all, err := rows.Read[bpf.TcQuicServerKey, uint32](m)
		errs = append(errs, err)
		for key, id := range all {
			if q := rowsOf(key.Service); q != nil {
				q.servers[key] = id
				continue
			}
			errs = append(errs, rows.Delete(m, key))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("adopt server IDs: %w", err)
	}
	return nil
}

func (t *Tables) auditQUICConfigs(repair bool) report.Compared {
	want := map[bpf.TcQuicConfigKey]bpf.TcQuicConfig{}
	for _, s := range t.services {
		maps.Copy(want, s.extras().quic.configs)
	}
	comparison := rows.Comparison[bpf.TcQuicConfigKey, bpf.TcQuicConfig]{
		Table: "quic_configs", Map: t.arrays.QUICConfigs.Table(), Want: want,
		Name: func(k bpf.TcQuicConfigKey) string {
			return fmt.Sprintf("configuration %d of service %d", k.Config, k.Service)
		},
	}
	return comparison.Check(repair)
}

func (t *Tables) auditQUICServers(repair bool) report.Compared {
	want := map[bpf.TcQuicServerKey]uint32{}
	for _, s := range t.services {
		maps.Copy(want, s.extras().quic.servers)
	}
	comparison := rows.Comparison[bpf.TcQuicServerKey, uint32]{
		Table: "quic_servers", Map: t.arrays.QUICServers.Table(), Want: want,
		Name: func(k bpf.TcQuicServerKey) string {
			return fmt.Sprintf("server ID %s of service %d", bpf.ServerID(k.Id), k.Service)
		},
	}
	return comparison.Check(repair)
}

// unequalQUIC compares a service's rows with its table.
func (t *Tables) unequalQUIC(s *service, want *bpf.ServiceTable) []string {
	q, have := quicOf(s, want, s.order), s.extras().quic
	if maps.Equal(q.servers, have.servers) && maps.Equal(q.configs, have.configs) {
		return nil
	}
	return []string{"has other server IDs, or other configurations of connection IDs"}
}
