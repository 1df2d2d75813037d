package copies

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
)

// batch is copies_to_put of bpf/cluster/put.h.
type batch [bpf.TcCopyLimitCOPY_BATCH]bpf.TcConnectionCopy

// target is the endpoint that a copy names: VIP, endpoint, protocol, mark, and whether packets have
// one way. An array of bytes is a map key that hashes several times as fast as addresses.
type target [2*(16+2) + 1 + 4 + 1]byte

func targetOf(in *report.ConnectionCopy) (t target) {
	const vipPort, endpoint, endpointPort, protocol, mark, way = 16, 18, 34, 36, 37, 41
	a, b := in.VIP.Addr().As16(), in.Endpoint.Addr().As16()
	copy(t[:], a[:])
	binary.BigEndian.PutUint16(t[vipPort:], in.VIP.Port())
	copy(t[endpoint:], b[:])
	binary.BigEndian.PutUint16(t[endpointPort:], in.Endpoint.Port())
	t[protocol], t[way] = byte(in.Protocol), in.Traits&oneWay
	binary.BigEndian.PutUint32(t[mark:], in.Mark)
	return t
}

// place is the place of a target in this node's tables.
type place struct {
	tables.CopyPlace
	ok bool
}

const (
	placesAge = time.Second // how long places are reused; the program checks them
	maxPlaces = 65_536
)

// ExpectCopies makes room for another node's connections. Nodes share their connections, so
// connections that the table has count towards them.
func (c *Copies) ExpectCopies(ctx context.Context, connections int) error {
	return c.table.MakeTotalRoom(ctx, connections)
}

// CountConnections returns the number of connections in the table.
func (c *Copies) CountConnections() int {
	entries, err := c.shared.Conntrack.Len()
	if err != nil {
		return 0
	}
	return int(entries / conntrack.EntriesPerConnection)
}

// PutCopies inserts copies of other nodes' connections, or merges them with existing ones. It
// stores the outcome of each in results, which is as long as list.
func (c *Copies) PutCopies(ctx context.Context, list []report.ConnectionCopy, results []report.CopyResult) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return err
	}
	for len(list) > 0 && ctx.Err() == nil {
		n := min(len(list), len(c.batch))
		if err := c.putBatch(ctx, list[:n], results[:n]); err != nil {
			return err
		}
		list, results = list[n:], results[n:]
	}
	return ctx.Err()
}

func (c *Copies) putBatch(ctx context.Context, list []report.ConnectionCopy, results []report.CopyResult) error {
	if err := c.room.ensure(ctx, len(list)); err != nil {
		return err
	}
	count, now := uint32(0), time.Now()
	for i := range list {
		results[i] = report.CopyUnknown
		if at := c.place(&list[i], now); at.ok && isPlausible(&list[i]) {
			c.batch[count] = c.row(&list[i], at)
			results[i] = report.CopyNone
			count++
		}
	}
	if count == 0 {
		return nil
	}
	rows := c.own.Variables["copies_to_put"]
	if err := rows.Set(&c.batch); err != nil {
		return fmt.Errorf("write copies of connections: %w", err)
	}
	if _, err := c.run(insertRows, count); err != nil {
		return fmt.Errorf("insert copies of connections: %w", err)
	}
	if err := rows.Get(&c.batch); err != nil {
		return fmt.Errorf("read results of copies: %w", err)
	}
	next := 0
	for i := range results {
		if results[i] != report.CopyNone {
			continue
		}
		row := &c.batch[next]
		results[i] = report.CopyResult(row.Result)
		if results[i] == report.CopyOutrun {
			if err := c.table.ResetCopied(row); err != nil {
				return err
			}
		}
		if next++; results[i] == report.CopyUnknown {
			c.placesAt = time.Time{} // the row belongs to another endpoint now
		}
	}
	return nil
}

// ForgetPlaces forgets where endpoints are, for tests that replace all services within placesAge.
func (c *Copies) ForgetPlaces() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placesAt = time.Time{}
}

// place finds the endpoint of a copy. It caches results, since most copies belong to few endpoints.
func (c *Copies) place(in *report.ConnectionCopy, now time.Time) place {
	key := targetOf(in)
	if now.Sub(c.placesAt) > placesAge || len(c.places) >= maxPlaces {
		c.places, c.placesAt = map[target]place{}, now
	}
	at, known := c.places[key]
	if !known {
		at.CopyPlace, at.ok = c.tables.CopyPlace(in)
		c.places[key] = at
	}
	return at
}
