package cluster

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// table is a connection table by client.
type table struct {
	mu       sync.Mutex
	rows     map[netip.AddrPort]report.ConnectionCopy
	own      map[netip.AddrPort]bool // opened here
	unknown  map[netip.AddrPort]bool // VIPs of services that are not here
	busy     bool                    // PutCopies inserts nothing now
	clients  []report.ClientCopy
	events   chan []report.ConnectionCopy
	lost     uint64
	block    chan struct{} // PutCopies waits until it is closed; nil: it does not
	fresh    bool
	expected int // connections of a node, by ExpectCopies
	quieted  int // calls of KeepQuiet
	puts     int // calls of PutCopies
	late     []bool
	broken   error // of LoadCopies

	hashed    time.Duration // by the last call of KeepQuiet
	unwatched atomic.Bool   // WatchCopies fails
	unread    atomic.Bool   // ScanCopies fails
	silent    atomic.Bool   // no connection is used, so none is due
	scanned   time.Duration // the longest of Since of scans for lost copies
}

func newTable() *table {
	return &table{
		rows: map[netip.AddrPort]report.ConnectionCopy{}, own: map[netip.AddrPort]bool{}, unknown: map[netip.AddrPort]bool{},
		events: make(chan []report.ConnectionCopy, 1000),
	}
}

func (f *table) LoadCopies() error     { return f.broken }
func (f *table) CountConnections() int { return f.len() }
func (f *table) ExpectCopies(_ context.Context, connections int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expected = max(f.expected, connections)
	return nil
}
func (f *table) NewTable() bool { return f.fresh }
func (f *table) KeepQuiet(_, hashed time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quieted++
	f.hashed = hashed
	return nil
}

func (f *table) WatchCopies(ctx context.Context, yield func([]report.ConnectionCopy, uint64)) error {
	if f.unwatched.Load() {
		return errors.New("no memory for a ring")
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case list := <-f.events:
			f.mu.Lock()
			lost := f.lost
			f.mu.Unlock()
			yield(list, lost)
		}
	}
}

func (f *table) ScanCopies(_ context.Context, what report.CopySelection, yield func([]report.ConnectionCopy) error) error {
	if f.unread.Load() {
		return errors.New("no memory for a slice")
	}
	f.mu.Lock()
	if !what.Due {
		f.scanned = max(f.scanned, what.Since)
	}
	var list []report.ConnectionCopy
	for client, c := range f.rows {
		if (f.own[client] || what.Copies) && !(what.Due && f.silent.Load()) {
			list = append(list, c)
		}
	}
	f.mu.Unlock()
	for part := range slices.Chunk(list, 500) {
		if err := yield(part); err != nil {
			return err
		}
	}
	return nil
}

func (f *table) PutCopies(ctx context.Context, list []report.ConnectionCopy, results []report.CopyResult) error {
	f.mu.Lock()
	block := f.block
	f.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts++
	for i, c := range list {
		f.late = append(f.late, c.Late)
		if f.unknown[c.VIP] {
			results[i] = report.CopyUnknown
			continue
		}
		if f.busy {
			results[i] = report.CopyBusy
			continue
		}
		old, ok := f.rows[c.Client]
		results[i] = report.CopyInserted
		switch {
		case ok:
			results[i], c = report.CopyMerged, record.Merge(old, c)
		case c.Late:
			results[i] = report.CopyOld
			continue
		}
		f.rows[c.Client] = c
	}
	return nil
}

func (f *table) ScanClients(_ context.Context, yield func([]report.ClientCopy) error) error {
	f.mu.Lock()
	list := slices.Clone(f.clients)
	f.mu.Unlock()
	return yield(list)
}

func (f *table) PutClients(_ context.Context, list []report.ClientCopy, unknown []bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, c := range list {
		if unknown[i] = f.unknown[c.VIP]; !unknown[i] {
			f.clients = append(f.clients, c)
		}
	}
	return nil
}

// open opens connections from..to here. quietly: the packet path has no room for the events.
func (f *table) open(from, to int, quietly bool) {
	var list []report.ConnectionCopy
	f.mu.Lock()
	for i := from; i < to; i++ {
		c := connection(i)
		f.rows[c.Client], f.own[c.Client] = c, true
		list = append(list, c)
	}
	if quietly {
		f.lost += uint64(to - from)
		list = nil
	}
	f.mu.Unlock()
	f.events <- list
}

// end ends connections from..to, and forgets them.
func (f *table) end(from, to int) {
	var list []report.ConnectionCopy
	f.mu.Lock()
	for i := from; i < to; i++ {
		c := connection(i)
		delete(f.rows, c.Client)
		c.Flags |= report.FlagsAcked
		list = append(list, c)
	}
	f.mu.Unlock()
	f.events <- list
}

// finish records the FINs of both sides of connections from..to, and sends no copies.
func (f *table) finish(from, to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := from; i < to; i++ {
		c := connection(i)
		c.Flags |= report.FlagsFIN
		f.rows[c.Client] = c
	}
}

// expire removes connections from..to.
func (f *table) expire(from, to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := from; i < to; i++ {
		delete(f.rows, connection(i).Client)
	}
}

// countOpen counts the connections that have not ended.
func (f *table) countOpen() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.rows {
		if !c.HasEnded() {
			n++
		}
	}
	return n
}

func (f *table) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rows)
}

func connection(i int) report.ConnectionCopy {
	client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 40000)
	vip, endpoint := netip.MustParseAddrPort("20.20.20.1:80"), netip.MustParseAddrPort("31.31.31.1:8080")
	return report.ConnectionCopy{
		Protocol: lb.TCP, Client: client, VIP: vip, Source: client, Endpoint: endpoint, Flags: 6, Generation: 1,
		Numbers: report.TCPNumbers{Sent: 1, ReplySent: 2, ReplyAcked: 1, Acked: 2},
	}
}
