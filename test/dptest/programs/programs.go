// Package programs runs loaded BPF programs on packets, compares XDP with tc, and changes the
// programs' state: it ages connections, limits ports and removes known clients.
package programs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"loxilb/test/dptest"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/testrun"
)

// Runner runs programs over the maps of a collection, and changes the rows that packets write.
type Runner struct {
	testrun.Runner
	xdp *attach.XDP
}

// New returns a Runner for the programs of c and of x. If x is nil, it runs no XDP program.
func New(c *loader.Collection, x *attach.XDP) *Runner {
	return &Runner{testrun.Runner{Collection: c}, x}
}

// Age makes every connection appear idle for longer by the given time, so tests need not wait.
func (r *Runner) Age(by time.Duration) error {
	ticks := r.Collection.Jiffies(by)
	if err := dptest.AgeConnections(r.Collection.Conntrack, ticks); err != nil {
		return fmt.Errorf("age connections: %w", err)
	}
	if err := r.ageReclaim(ticks); err != nil {
		return fmt.Errorf("age the pass of packets through the table: %w", err)
	}
	return errors.Join(r.ageFragments(ticks), r.ageRedials(ticks), r.agePortPressure(ticks), r.ageSweepDue(ticks))
}

// ageRedials ages the SYNs that wait for an answer. The lower half of each word is the time.
func (r *Runner) ageRedials(ticks uint32) error {
	var asked [bpf.TcLimitMAX_REDIALS]uint64
	v := r.Collection.Variables.Redials
	if err := v.Get(&asked); err != nil {
		return fmt.Errorf("age redials: %w", err)
	}
	for i, word := range asked {
		if word != 0 {
			asked[i] = word>>32<<32 | uint64(uint32(word)-ticks)
		}
	}
	if err := v.Set(asked); err != nil {
		return fmt.Errorf("age redials: %w", err)
	}
	return nil
}

// ageReclaim makes the last reclaim pass of packets through the table appear to have begun earlier.
func (r *Runner) ageReclaim(ticks uint32) error {
	var pass bpf.TcReclaimPass
	v := r.Collection.Variables.ReclaimPass
	if err := v.Get(&pass); err != nil {
		return err
	}
	pass.Began -= ticks
	pass.Last -= ticks
	return v.Set(pass)
}

// SetSweepOverdue makes the sweep overdue for the given number of kernel ticks, as if the daemon
// had been killed. Packets then reclaim expired connections.
func (r *Runner) SetSweepOverdue(ago uint32) error {
	now, err := loader.Now()
	if err != nil {
		return err
	}
	return r.Collection.Variables.SweepDue.Set(max(now-ago, 1))
}

// ageSweepDue ages the time at which a sweep is due: the sweep is not overdue in the same kernel
// tick.
func (r *Runner) ageSweepDue(ticks uint32) error {
	var due uint32
	v := r.Collection.Variables.SweepDue
	now, err := loader.Now()
	if err == nil {
		err = v.Get(&due)
	}
	if err != nil || due == 0 || int32(due-now) > 0 {
		return err
	}
	return v.Set(max(due-ticks, 1))
}

// SweepOverdueTicks returns for how many kernel ticks the sweep has been overdue, modulo 2^32.
func (r *Runner) SweepOverdueTicks() (uint32, error) {
	var due uint32
	now, err := loader.Now()
	if err == nil {
		err = r.Collection.Variables.SweepDue.Get(&due)
	}
	return now - due, err
}

// ClearSweepDue makes the packet path rely on sweeps without a due time: tests call Sweep
// themselves.
func (r *Runner) ClearSweepDue() error { return r.Collection.Variables.SweepDue.Set(uint32(0)) }

// HoldReclaim prevents packets from reclaiming expired connections for a second.
func (r *Runner) HoldReclaim() error {
	now, err := loader.Now()
	if err != nil {
		return err
	}
	return r.Collection.Variables.ReclaimPass.Set(bpf.TcReclaimPass{Began: now, Last: now})
}

func (r *Runner) ageFragments(ticks uint32) error {
	var keys []bpf.TcFragmentKey
	var key bpf.TcFragmentKey
	var row bpf.TcFragment
	all := r.Collection.Maps.Fragments.Iterate()
	for all.Next(&key, &row) {
		keys = append(keys, key)
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("age fragments: %w", err)
	}
	for _, key := range keys {
		if err := r.Collection.Maps.Fragments.Lookup(key, &row); err != nil {
			return fmt.Errorf("age fragments: %w", err)
		}
		row.Since -= ticks
		if err := r.Collection.Maps.Fragments.Put(key, row); err != nil {
			return fmt.Errorf("age fragments: %w", err)
		}
	}
	return nil
}

// AgePersists ages the records of clients of select=persist.
func (r *Runner) AgePersists(by time.Duration) error {
	ticks := r.Collection.Jiffies(by)
	all := map[bpf.TcPersistKey]bpf.TcPersistEntry{}
	var key bpf.TcPersistKey
	var row bpf.TcPersistEntry
	table := r.Collection.Persists.Table()
	if table == nil {
		return nil
	}
	it := table.Iterate()
	for it.Next(&key, &row) {
		all[key] = row
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("age clients: %w", err)
	}
	for key, row := range all {
		row.Seen -= ticks
		if err := table.Update(key, row, ebpf.UpdateExist); err != nil {
			return fmt.Errorf("age clients: %w", err)
		}
	}
	return nil
}

// AgeKnownClients ages known clients.
func (r *Runner) AgeKnownClients(by time.Duration) error {
	ticks := r.Collection.Jiffies(by)
	return r.changeKnownClients(func(row uint64) uint64 { return row&^(1<<32-1) | uint64(uint32(row)-ticks) })
}

// ForgetKnownClients removes all known clients.
func (r *Runner) ForgetKnownClients() error {
	return r.changeKnownClients(func(uint64) uint64 { return 0 })
}

// changeKnownClients changes the rows of known clients in mapped memory: system calls would take a
// hundred times as long.
func (r *Runner) changeKnownClients(change func(row uint64) uint64) error {
	memory, err := r.Collection.Maps.KnownClients.Memory()
	if err != nil {
		return fmt.Errorf("map known clients: %w", err)
	}
	const word = 8
	page := make([]byte, os.Getpagesize())
	for at := int64(0); at < int64(memory.Size()); at += int64(len(page)) {
		if _, err := memory.ReadAt(page, at); err != nil {
			return fmt.Errorf("read known clients: %w", err)
		}
		for i := 0; i < len(page); i += word {
			row := binary.NativeEndian.Uint64(page[i:])
			if row == 0 {
				continue
			}
			changed := binary.NativeEndian.AppendUint64(nil, change(row))
			if _, err := memory.WriteAt(changed, at+int64(i)); err != nil {
				return fmt.Errorf("change known clients: %w", err)
			}
		}
	}
	return nil
}

// Secrets returns the keys of the packet path's hashes.
func (r *Runner) Secrets() (keys bpf.TcSecretKeys, err error) {
	if err := r.Collection.Maps.Secrets.Lookup(uint32(0), &keys); err != nil {
		return keys, fmt.Errorf("read the keys of challenges: %w", err)
	}
	return keys, nil
}
