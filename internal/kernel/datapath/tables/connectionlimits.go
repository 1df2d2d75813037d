package tables

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// putLimits writes the connection limits of a service, if it has or had some. Clients are counted
// from zero if there were none before.
func (t *Tables) putLimits(s *service, want bpf.Limits, undo *undoLog) error {
	if !want.Any() && s.row.Flags&serviceLimited == 0 {
		return nil
	}
	for _, a := range []interface{ Make() error }{t.arrays.LimitedClients, t.arrays.ServiceLimits} {
		if err := a.Make(); err != nil {
			return err
		}
	}
	m := t.arrays.ServiceLimits.Table()
	var was bpf.TcServiceLimits
	if err := m.Lookup(s.id, &was); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read limits of connections: %w", err)
	}
	row := bpf.TcServiceLimits{
		Rate: want.Rate, Connections: want.Connections, ClientRate: want.ClientRate, ClientConnections: want.ClientConnections,
		ClientPrefix: want.ClientPrefix, Generation: was.Generation,
	}
	if was.ClientConnections == 0 && row.ClientConnections != 0 || was.ClientPrefix != row.ClientPrefix {
		row.Generation++
	}
	undo.add(func() error { return m.Put(s.id, was) })
	if err := m.Put(s.id, row); err != nil {
		return fmt.Errorf("write limits of connections: %w", err)
	}
	return nil
}

// adoptConnectionLimits clears the limits of services that are gone or have none: an earlier
// process was killed before it did.
func (t *Tables) adoptConnectionLimits(byID map[uint32]*service) error {
	m := t.arrays.ServiceLimits.Table()
	if m == nil {
		return nil
	}
	stale := map[uint32]bpf.TcServiceLimits{}
	err := rows.EachBatch(m, MaxServices, func(ids []uint32, all []bpf.TcServiceLimits) {
		for i, row := range all {
			none := bpf.TcServiceLimits{Generation: row.Generation}
			s := byID[ids[i]]
			if row == none || s != nil && !s.deleted && s.row.Flags&serviceLimited != 0 {
				continue
			}
			none.Generation++
			stale[ids[i]] = none
		}
	})
	for id, row := range stale {
		err = errors.Join(err, m.Put(id, row))
	}
	if err != nil {
		return fmt.Errorf("clear limits of connections: %w", err)
	}
	return nil
}
