package connections

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb/report"
)

// SweepStats are the results and the cost of sweeps.
type SweepStats struct {
	Sweeps  uint64
	Visited uint64        // visited entries, all sweeps together
	Ended   uint64        // connections removed
	Last    time.Duration // CPU time of the last sweep
	Longest time.Duration // CPU time of its longest slice, and so the longest wait for the CPU
}

const (
	// sweptKeys is the number of keys of a hash table that a program sweeps at once: SWEPT_KEYS in
	// bpf/sweep.bpf.c.
	sweptKeys = 64
	// markTimer is SWEEP_START_TIMER there.
	markTimer = math.MaxUint32
	// sweptRemoved is the number of removed keys after which it pauses: the kernel frees all rows
	// that were removed in a grace period at once, while packets on that CPU wait.
	sweptRemoved = 256
	// pause between slices lets packets and other programs have the CPU.
	pause = 500 * time.Microsecond
)

// Sweep ends the due connections of endpoints, and sweeps the connection table once: for tests and
// measurements.
func (t *Table) Sweep(ctx context.Context) error {
	if err := t.EndDue(ctx); err != nil {
		return err
	}
	return t.sweep(ctx)
}

// sweep visits the whole connection table once and removes ended connections. It works in slices
// and may take a while; concurrent calls queue up.
func (t *Table) sweep(ctx context.Context) error {
	t.sweeping.Lock()
	defer t.sweeping.Unlock()
	runtime.LockOSThread() // for ThreadCPU
	defer runtime.UnlockOSThread()
	start, ends := monotime.ThreadCPU(), time.Duration(0)
	defer func() {
		t.cost = monotime.ThreadCPU() - start
		t.recurring = t.cost - ends
	}()
	t.tables.BeginSweep(t.quiesce)
	total, longest, err := t.sweepTable(ctx)
	if err != nil {
		return fmt.Errorf("sweep connections: %w", err)
	}
	t.tables.EndSweep()
	if err := t.shared.Locations.Turn(); err != nil {
		return err
	}
	if err := t.GatherLoads(t.tables.Compared()); err != nil {
		t.shared.Log.Error("loads of endpoints are compared inexactly until the next sweep", "error", err)
	}
	if usages := t.tables.SNATUsages(); usages != nil {
		_, slice, err := sweepMap[bpf.TcSnatPair, bpf.TcSnatUsage](ctx, t, sweepSNAT, usages)
		if err != nil {
			return fmt.Errorf("sweep source ports: %w", err)
		}
		longest = max(longest, slice)
	}
	return t.tables.Reap(t.quiesce, func(bool) error {
		more, slice, err := t.forgetClients(ctx)
		if err != nil {
			return err
		}
		visited, ended, err := t.recordSweep(total+more, max(longest, slice))
		ends = costOfEnds(total, visited, ended)
		return err
	})
}

// costOfEnds returns how much of the time of a pass ended connections took: ending one takes as
// long as visiting visitsPerEnd rows.
func costOfEnds(total time.Duration, visited, ended uint64) time.Duration {
	const visitsPerEnd = 8
	return time.Duration(float64(total) * float64(visitsPerEnd*ended) / float64(max(visited+visitsPerEnd*ended, 1)))
}

// forgetClients forgets clients of services that remember them, if their time is over or their
// endpoint has left.
func (t *Table) forgetClients(ctx context.Context) (total, longest time.Duration, err error) {
	persists := t.tables.Persists()
	if persists == nil {
		return 0, 0, nil
	}
	if total, longest, err = sweepMap[bpf.TcPersistKey, bpf.TcPersistEntry](ctx, t, sweepPersists, persists); err != nil {
		err = fmt.Errorf("sweep clients: %w", err)
	}
	return total, longest, err
}

// sweepTable runs the program on one slice of the table after another.
func (t *Table) sweepTable(ctx context.Context) (total, longest time.Duration, err error) {
	for next := uint32(0); ; {
		buckets, err := t.shared.Conntrack.Buckets() // the table may grow meanwhile
		if err != nil {
			return total, longest, err
		}
		if next >= buckets {
			return total, longest, nil
		}
		t.keepPromise()
		start := monotime.ThreadCPU()
		next, err = t.runMarked(sweepRows, next)
		took := monotime.ThreadCPU() - start
		total += took
		longest = max(longest, took)
		if err != nil {
			return total, longest, err
		}
		t.resetIdle()
		if err := yieldCPU(ctx); err != nil {
			return total, longest, err
		}
	}
}

// runMarked runs a program on an empty packet with this mark.
func (t *Table) runMarked(program string, mark uint32) (uint32, error) {
	return t.programs.run(program, &ebpf.RunOptions{Data: testrun.EmptyFrame(), Context: testrun.SKB{Mark: mark}})
}

// yieldCPU pauses, so packets and other programs get the CPU.
func yieldCPU(ctx context.Context) error {
	if !monotime.Sleep(ctx, pause) {
		return ctx.Err()
	}
	return nil
}

// sweepMap runs the program for the keys of a hash table. It pauses after some thousand keys, or
// sweptRemoved that the program has removed.
func sweepMap[K, V any](ctx context.Context, t *Table, program string, m *ebpf.Map) (total, longest time.Duration, err error) {
	if _, err := t.programs.Program(program); err != nil { // loading it is no slice
		return 0, 0, err
	}
	start := monotime.ThreadCPU()
	began, frame, removed := start, make([]byte, etherBytes), uint32(0)
	read := rows.EachBatch(m, rows.All, func(keys []K, _ []V) {
		longest = max(longest, monotime.ThreadCPU()-began) // of reading the keys
		t.keepPromise()
		for some := range slices.Chunk(keys, sweptKeys) {
			if err != nil {
				return
			}
			began = monotime.ThreadCPU()
			frame = appendKeys(frame[:etherBytes], some)
			var n uint32
			n, err = t.programs.run(program, &ebpf.RunOptions{Data: frame, Context: testrun.SKB{Mark: uint32(len(some))}})
			longest = max(longest, monotime.ThreadCPU()-began)
			if removed += n; removed >= sweptRemoved && err == nil {
				removed, err = 0, yieldCPU(ctx)
			}
		}
		if err == nil {
			err = yieldCPU(ctx)
		}
		began = monotime.ThreadCPU()
	})
	return monotime.ThreadCPU() - start, longest, errors.Join(err, read)
}

// appendKeys appends keys to a frame as they are in memory: encoding/binary would take longer than
// the program does.
func appendKeys[K any](frame []byte, keys []K) []byte {
	return append(frame, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(keys))), len(keys)*int(unsafe.Sizeof(*new(K))))...)
}

// recordSweep returns the number of entries that the pass has visited, and of connections that it
// has ended.
func (t *Table) recordSweep(total, longest time.Duration) (visited, ended uint64, err error) {
	var perCPU []bpf.TcSweepReport
	if err := t.shared.Maps.SweepReports.Lookup(uint32(0), &perCPU); err != nil {
		return 0, 0, fmt.Errorf("read sweep report: %w", err)
	}
	t.sweptMu.Lock()
	defer t.sweptMu.Unlock()
	before := t.swept
	t.swept.Sweeps++
	t.swept.Visited, t.swept.Ended = 0, 0
	for _, r := range perCPU {
		t.swept.Visited += r.Visited
		t.swept.Ended += r.Ended
	}
	t.swept.Last, t.swept.Longest = total, longest
	return t.swept.Visited - before.Visited, t.swept.Ended - before.Ended, nil
}

// Swept returns the results of the sweeps so far.
func (t *Table) Swept() SweepStats {
	t.sweptMu.Lock()
	defer t.sweptMu.Unlock()
	return t.swept
}

// SweepEvery sweeps until ctx ends: every period, but never more often than keeps the cost of
// visiting the table below one percent of one core. Ending connections does not count: it takes as
// long whenever it is done, and later ones would fill the table meanwhile. While the table is more
// than three quarters full, it does not wait for the period, and may cost ten percent; half of a
// core, including the ends, up to ten times a second, while there is pressure.
func (t *Table) SweepEvery(ctx context.Context, period time.Duration) {
	defer t.PromiseSweep(-sweepGrace) // packets free expired connections from now on
	t.PromiseSweep(0)
	if err := t.startTimer(); err != nil {
		t.shared.Log.Error("without this daemon, only new connections will free expired ones", "error", err)
	}
	var done time.Time // when the last sweep ended
	for {
		pause, look := t.sweepPause(period)
		left := pause - time.Since(done)
		calm := t.WakeSignal()
		if calm != nil {
			look = left
		}
		t.PromiseSweep(min(left, look))
		select {
		case <-ctx.Done():
			return
		case <-calm:
			continue
		case <-time.After(min(left, look)): // the table may fill up meanwhile
		}
		if left > look {
			continue
		}
		if err := t.sweep(ctx); err != nil && ctx.Err() == nil {
			t.shared.Log.Error("sweep failed", "error", err)
		}
		done = time.Now()
	}
}

// startTimer starts the kernel's timer that frees expired connections when no process sweeps any
// more. If a former process has started it, it runs this one's program from now on.
func (t *Table) startTimer() error {
	result, err := t.runMarked(sweepRows, markTimer)
	if err == nil && result != 0 {
		err = unix.Errno(-int32(result))
	}
	if err != nil {
		return fmt.Errorf("start the timer of the connection table: %w", err)
	}
	return nil
}

// sweepPause returns how long to wait after a sweep, and after what time to check again. The cost
// of counting connections and freeing endpoints is included.
func (t *Table) sweepPause(period time.Duration) (pause, look time.Duration) {
	t.sweeping.Lock()
	cost, recurring := t.cost, t.recurring
	t.sweeping.Unlock()
	p, err := t.meter.Fullness()
	if err != nil {
		t.shared.Log.Error("pressure cannot be determined", "error", err)
	}
	if p.Urgency() == report.UrgencyHigh {
		recurring = cost
	}
	return pauseAfter(recurring, p, period)
}

// pauseAfter is sweepPause for a sweep of this cost and a table this full.
func pauseAfter(cost time.Duration, p report.Pressure, period time.Duration) (pause, look time.Duration) {
	const soon, later = 100 * time.Millisecond, 500 * time.Millisecond
	switch p.Urgency() {
	case report.UrgencyHigh:
		return max(cost, soon), soon
	case report.UrgencyMedium:
		return max(10*cost, time.Second), soon
	}
	if 4*p.Entries > p.EntriesMax || 4*(p.HalfOpenTCP+p.HalfOpenOthers) > p.HalfOpenMax {
		return max(100*cost, period), soon
	}
	return max(100*cost, period), later // a quarter of the table is not filled in that time
}

// Occupancy returns the number of connections in the table, including closed ones that are not
// swept yet, and the limit.
func (t *Table) Occupancy() (tracked, size uint64) {
	tracked, err := t.tables.Tracked()
	if err != nil {
		t.shared.Log.Error("connections cannot be counted", "error", err)
	}
	most, err := t.shared.Conntrack.Max()
	if err != nil {
		t.shared.Log.Error("connections cannot be counted", "error", err)
	}
	return tracked, most / conntrack.EntriesPerConnection
}

// quiesce returns true when all packets that were in the programs when it was called have left
// them. A program runs within one RCU read section, and this barrier waits for a grace period, some
// 10 ms. It returns false if the kernel lacks the barrier (nohz_full); then the caller must wait
// long enough.
func (t *Table) quiesce() bool {
	if !t.inUse() {
		return true // only packets of tests
	}
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	return errno == 0
}

// sweepGrace is how late a sweep may be before packets sweep in its place
// (bpf/conntrack/reclaim.h).
const sweepGrace = 3 * time.Second

// promise announces the time of the next slice to the packet path. A process that ended no longer
// renews it, so its end needs no other detection.
type promise struct{ clock loader.Clock }

// PromiseSweep promises the packet path that a sweep begins within d. Before the first promise,
// packets free nothing themselves.
func (t *Table) PromiseSweep(d time.Duration) {
	if err := t.promise.renew(t.shared, d+sweepGrace); err != nil {
		t.shared.Log.Error("the packet path cannot be notified of the next sweep", "error", err)
	}
}

// keepPromise renews the promise during a sweep. Tests that sweep once promise nothing.
func (t *Table) keepPromise() {
	if t.promise.clock.Started() {
		t.PromiseSweep(0)
	}
}

func (p *promise) renew(c *loader.Collection, d time.Duration) error {
	due, err := p.clock.In(min(d, maxSweepPromise), &c.Settings)
	if err != nil {
		return err
	}
	return c.Variables.SweepDue.Set(max(due, 1)) // a write to memory; 0 would mean no promise
}

// maxSweepPromise is less than SWEEP_PROMISE_MAX ticks (bpf/shared.h), whatever their length.
const maxSweepPromise = 15 * time.Minute
