package datapath

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/bpf"
)

// SweepStats say what the sweeps have done and what they cost.
type SweepStats struct {
	Sweeps  uint64
	Visited uint64        // entries looked at, all sweeps together
	Ended   uint64        // connections removed
	Last    time.Duration // CPU time of the last sweep
	Longest time.Duration // CPU time of its longest slice: nothing was kept waiting for longer
}

const (
	// sliceBytes is how much a slice reads, and so how many entries it visits: 256 for each byte. 4,096
	// entries take below a millisecond.
	sliceBytes = 16
	// pause between slices lets packets and other programs have the CPU.
	pause = 500 * time.Microsecond
)

// Sweep goes through the connection table once and removes what is over: connections past their time, and
// those of endpoints that were taken away. It works in slices and may take a while; concurrent calls queue up.
func (d *Datapath) Sweep(ctx context.Context) error {
	d.sweeping.Lock()
	defer d.sweeping.Unlock()
	runtime.LockOSThread() // for cpuTime
	defer runtime.UnlockOSThread()
	total, longest, err := sweepMap(ctx, d.sweep.LoxilbSweep, d.obj.Connections)
	if err != nil {
		return fmt.Errorf("sweep connections: %w", err)
	}
	if _, _, err := sweepMap(ctx, d.sweep.LoxilbSweepSnat, d.obj.SnatUsages); err != nil {
		return fmt.Errorf("sweep source ports: %w", err)
	}
	return d.reap(func() error {
		if !d.anyPersisting() {
			return d.noteSweep(total, longest)
		}
		more, slice, err := sweepMap(ctx, d.sweep.LoxilbSweepPersists, d.obj.Persists)
		if err != nil {
			return fmt.Errorf("sweep clients: %w", err)
		}
		return d.noteSweep(total+more, max(longest, slice))
	})
}

// sweepMap runs the program on each entry.
func sweepMap(ctx context.Context, p *ebpf.Program, m *ebpf.Map) (total, longest time.Duration, err error) {
	it, err := link.AttachIter(link.IterOptions{Program: p, Map: m})
	if err != nil {
		return 0, 0, err
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	return readSlices(ctx, r)
}

// readSlices reads to the end; each read is a slice.
func readSlices(ctx context.Context, r io.Reader) (total, longest time.Duration, err error) {
	buf := make([]byte, sliceBytes)
	for {
		start := cpuTime()
		_, err := r.Read(buf)
		took := cpuTime() - start
		total += took
		longest = max(longest, took)
		if err == io.EOF {
			return total, longest, nil
		}
		if err != nil {
			return total, longest, err
		}
		select {
		case <-ctx.Done():
			return total, longest, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// cpuTime is what the thread has used so far, in user space and in the kernel.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func (d *Datapath) noteSweep(total, longest time.Duration) error {
	var perCPU []bpf.TcSweepReport
	if err := d.obj.SweepReports.Lookup(uint32(0), &perCPU); err != nil {
		return fmt.Errorf("read sweep report: %w", err)
	}
	d.sweptMu.Lock()
	defer d.sweptMu.Unlock()
	d.swept.Sweeps++
	d.swept.Visited, d.swept.Ended = 0, 0
	for _, r := range perCPU {
		d.swept.Visited += r.Visited
		d.swept.Ended += r.Ended
	}
	d.swept.Last, d.swept.Longest = total, longest
	return nil
}

// Swept reports on the sweeps so far.
func (d *Datapath) Swept() SweepStats {
	d.sweptMu.Lock()
	defer d.sweptMu.Unlock()
	return d.swept
}

// SweepEvery sweeps until ctx ends: every period, at once when kick says so, and never more often than keeps
// its cost below one percent of one core; below ten while the table is more than three quarters full.
func (d *Datapath) SweepEvery(ctx context.Context, period time.Duration, kick <-chan struct{}) {
	wait := period
	for {
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-time.After(wait):
		}
		if err := d.Sweep(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("sweep failed", "err", err)
		}
		wait = 100 * d.Swept().Last
		if active, size := d.Occupancy(); active > size/4*3 {
			wait /= 10
		}
		wait = max(wait, period)
	}
}
