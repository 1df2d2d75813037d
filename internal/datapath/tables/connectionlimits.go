package tables

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
)

// putLimits writes how many connections a service may have, if it has limits or had some. Clients are counted anew when they had
// none before.
func (t *Tables) putLimits(s *service, want bpf.Limits, undo *undoLog) error {
	const limited = uint16(bpf.TcServiceFlagSERVICE_LIMITED)
	if !want.Any() && s.row.Flags&limited == 0 {
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
