package copies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb/report"
)

// scanPause lets packets and other programs have the CPU between two slices.
const scanPause = 500 * time.Microsecond

// ScanCopies calls yield with the selected connections of the table, a few hundred at a time. It
// repeats the scan if growth has moved entries to earlier groups. Connections are valid until yield
// returns. The table changes meanwhile: changes arrive by WatchCopies.
func (c *Copies) ScanCopies(ctx context.Context, what report.CopySelection, yield func([]report.ConnectionCopy) error) error {
	now, err := loader.Now()
	if err != nil {
		return err
	}
	since := now - c.shared.Jiffies(what.Since)
	return c.shared.Conntrack.ScanAll(func() error { return c.scan(ctx, what, since, yield) })
}

// scan scans the table once.
func (c *Copies) scan(ctx context.Context, what report.CopySelection, since uint32, yield func([]report.ConnectionCopy) error) error {
	var list []report.ConnectionCopy
	for bucket := uint32(0); ; {
		found, next, err := c.scanSlice(list[:0], what, since, bucket)
		if err != nil {
			return err
		}
		list = found
		if len(list) > 0 {
			if err := yield(list); err != nil {
				return err
			}
		}
		if next == bucket {
			return nil // the table has no such bucket
		}
		bucket = next
		if !monotime.Sleep(ctx, scanPause) {
			return ctx.Err()
		}
	}
}

// scanSlice scans a slice of the table, and returns the next bucket.
func (c *Copies) scanSlice(list []report.ConnectionCopy, what report.CopySelection, since, bucket uint32) ([]report.ConnectionCopy, uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return list, bucket, err
	}
	mode, withCopies := bpf.TcScanModeSCAN_ALL, uint32(0)
	switch {
	case what.Due:
		mode = bpf.TcScanModeSCAN_DUE
	case what.Since > 0:
		mode = bpf.TcScanModeSCAN_SINCE
	}
	if what.Copies {
		withCopies = 1
	}
	v := c.own.Variables
	if err := errors.Join(v["scan_mode"].Set(uint32(mode)), v["scan_since"].Set(since), v["scan_copies"].Set(withCopies)); err != nil {
		return list, bucket, fmt.Errorf("select connections for other nodes: %w", err)
	}
	next, err := c.run(scanTable, bucket)
	if err != nil {
		return list, bucket, fmt.Errorf("scan connections for other nodes: %w", err)
	}
	var record ringbuf.Record
	for {
		if err := c.scanned.ReadInto(&record); errors.Is(err, os.ErrDeadlineExceeded) {
			return list, next, nil
		} else if err != nil {
			return list, bucket, fmt.Errorf("read scanned connections: %w", err)
		}
		row, err := rowOf(record.RawSample)
		if err != nil {
			return list, bucket, err
		}
		if one, ok := c.describe(row); ok {
			list = append(list, one)
		}
	}
}

// run runs a program on an empty packet with this mark.
func (c *Copies) run(program string, mark uint32) (uint32, error) {
	return c.programs[program].Run(&ebpf.RunOptions{Data: testrun.EmptyFrame(), Context: testrun.SKB{Mark: mark}})
}
