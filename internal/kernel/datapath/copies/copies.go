// Package copies exchanges connections of the table with user space: it reads this node's
// connections, and inserts those of other nodes (docs/adr/0092-connection-sync.md).
package copies

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
)

// The programs, by purpose.
const (
	scanTable  = "loxilb_scan_copies"
	insertRows = "loxilb_put_copies"
)

// Copies reads and inserts copies of connections. Its programs are loaded with the first use: a
// node without a cluster has none. Methods are safe for concurrent use.
type Copies struct {
	shared *loader.Collection
	tables *tables.Tables
	table  *connections.Table
	clock  loader.Clock

	mu       sync.Mutex // one run of a program at a time
	own      *ebpf.Collection
	programs map[string]*ebpf.Program // nil: not loaded yet
	scanned  *ringbuf.Reader
	room     room
	batch    batch
	places   map[target]place // of recent copies
	placesAt time.Time        // when they were read
}

// New loads nothing yet.
func New(c *loader.Collection, services *tables.Tables, t *connections.Table) *Copies {
	return &Copies{shared: c, tables: services, table: t, room: room{grow: t.MakeRoom, log: c.Log}}
}

// LoadCopies loads the programs.
func (c *Copies) LoadCopies() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load()
}

func (c *Copies) load() error {
	if c.programs != nil {
		return nil
	}
	spec, err := bpf.LoadCluster()
	if err != nil {
		return fmt.Errorf("read the object of a cluster's programs: %w", err)
	}
	if err := c.shared.Configure(spec); err != nil {
		return err
	}
	shared := connections.SharedMaps(c.shared)
	loader.ShareMaps(spec, shared, "scanned_copies")
	if err := spec.Variables["watching"].Set(uint32(1)); err != nil { // it checks the watchers each time
		return fmt.Errorf("make a cluster's programs notify watchers: %w", err)
	}
	own, err := loader.MakeMaps(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return fmt.Errorf("make maps of a cluster's programs: %w", err)
	}
	programs, err := loader.LoadPrograms(spec, own.Maps)
	if err != nil {
		own.Close()
		return fmt.Errorf("load a cluster's programs: %w", err)
	}
	reader, err := ringbuf.NewReader(own.Maps["scanned_copies"])
	if err != nil {
		own.Close()
		return fmt.Errorf("read found connections: %w", err)
	}
	reader.SetDeadline(time.Unix(1, 0)) // reads never block
	c.own, c.programs, c.scanned = own, programs, reader
	return nil
}

// Close releases the programs.
func (c *Copies) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.programs == nil {
		return nil
	}
	errs := []error{c.scanned.Close()}
	for _, p := range c.programs {
		errs = append(errs, p.Close())
	}
	c.own.Close()
	c.programs = nil
	return errors.Join(errs...)
}

// KeepQuiet leaves segments of unknown TCP connections unanswered for d, while copies of their
// connections may arrive (bpf/open/quiet.h). Segments that a service forwards by their hash are
// dropped for the time hashed. 0 ends this.
func (c *Copies) KeepQuiet(d, hashed time.Duration) error {
	until, err := c.untilAfter(d)
	hashedUntil, err2 := c.untilAfter(hashed)
	v := &c.shared.Variables
	if err := errors.Join(err, err2, v.QuietHashedUntil.Set(hashedUntil), v.QuietUntil.Set(until)); err != nil {
		return fmt.Errorf("leave unknown connections unanswered: %w", err)
	}
	return nil
}

// untilAfter returns the time d from now in jiffies, or 0 if d is 0.
func (c *Copies) untilAfter(d time.Duration) (uint32, error) {
	if d <= 0 {
		return 0, nil
	}
	at, err := c.clock.In(d, &c.shared.Settings)
	return max(at, 1), err
}

// NewTable reports whether this process made the connection table, so it has no connections of an
// earlier process.
func (c *Copies) NewTable() bool { return c.shared.Fresh }
