package copies

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
)

// clientsBatch is the number of rows of persists that are read at once.
const clientsBatch = 1024

// ScanClients calls yield with the clients whose endpoints services remember. They are valid until
// yield returns.
func (c *Copies) ScanClients(ctx context.Context, yield func([]report.ClientCopy) error) error {
	m := c.tables.Persists()
	if m == nil {
		return nil
	}
	keys, rows := make([]bpf.TcPersistKey, clientsBatch), make([]bpf.TcPersistEntry, clientsBatch)
	var cursor ebpf.MapBatchCursor
	for ctx.Err() == nil {
		n, err := m.BatchLookup(&cursor, keys, rows, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return fmt.Errorf("read the clients of services: %w", err)
		}
		now, err := loader.Now()
		if err != nil {
			return err
		}
		list := make([]report.ClientCopy, 0, n)
		for i := range n {
			var one report.ClientCopy
			if c.tables.ClientOrigin(&one, keys[i], rows[i], now) {
				list = append(list, one)
			}
		}
		if len(list) > 0 {
			if err := yield(list); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
	return ctx.Err()
}

// PutClients stores clients of other nodes in their services, unless a service has a later endpoint
// of the client. unknown, which is as long as list, marks clients whose service or endpoint does
// not exist here.
func (c *Copies) PutClients(ctx context.Context, list []report.ClientCopy, unknown []bool) error {
	now, err := loader.Now()
	if err != nil {
		return err
	}
	for i := range list {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		at, timeout, ok := c.tables.ClientPlace(&list[i])
		if unknown[i] = !ok; !ok {
			continue
		}
		ticks := uint32(list[i].Idle / c.shared.Jiffy())
		if at.PersistPrefix == 0 || ticks > timeout || list[i].Client.Is4() != list[i].VIP.Addr().Is4() {
			continue
		}
		if err := c.putClient(at, list[i].Client, now-ticks); err != nil {
			return err
		}
	}
	return nil
}

// putClient writes the endpoint of a client, unless a later one is known. If a packet does so at
// the same time, either endpoint may stay.
func (c *Copies) putClient(at tables.CopyPlace, client netip.Addr, seen uint32) error {
	m := c.tables.Persists()
	if m == nil {
		return nil
	}
	key := bpf.TcPersistKey{Service: at.Service, Client: bpf.Prefix(bpf.Addr(client), uint32(at.PersistPrefix))}
	row := bpf.TcPersistEntry{Endpoint: at.Endpoint, Seen: seen}
	var known bpf.TcPersistEntry
	if err := m.Lookup(&key, &known); err == nil && int32(known.Seen-row.Seen) >= 0 {
		return nil
	}
	if err := m.Put(&key, &row); err != nil && !errors.Is(err, unix.E2BIG) { // full: endpoints of further clients are selected by hash
		return fmt.Errorf("remember a client: %w", err)
	}
	return nil
}
