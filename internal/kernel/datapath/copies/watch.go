package copies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

const (
	// ringBytes is the size of the ring: 140,000 copies.
	ringBytes = 16 << 20
	// gather is how long a busy node collects copies before it sends them.
	gather = time.Millisecond
	// watchBatch is the maximum number of copies that are passed on at a time.
	watchBatch = 1024
)

// WatchCopies calls yield with copies of connections whose state has changed in a way that other
// nodes need, and with the number lost since the watch began, until ctx ends. The copies are valid
// until yield returns. There must be no other watch.
func (c *Copies) WatchCopies(ctx context.Context, yield func(list []report.ConnectionCopy, lost uint64)) error {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "copies", Type: ebpf.RingBuf, MaxEntries: ringBytes})
	if err != nil {
		return fmt.Errorf("make a ring for copies of connections: %w", err)
	}
	defer ring.Close()
	reader, err := ringbuf.NewReader(ring)
	if err != nil {
		return fmt.Errorf("read copies of connections: %w", err)
	}
	defer reader.Close()
	before, err := c.lost()
	if err != nil {
		return err
	}
	if err := c.shared.Maps.Watchers.Put(uint32(bpf.TcRingCOPIES), ring); err != nil {
		return fmt.Errorf("attach the ring of copies: %w", err)
	}
	defer c.shared.Maps.Watchers.Delete(uint32(bpf.TcRingCOPIES)) //nolint:errcheck // nothing writes there any more
	if err := c.shared.Variables.Copying.Set(uint32(1)); err != nil {
		return fmt.Errorf("enable copies of connections: %w", err)
	}
	defer c.shared.Variables.Copying.Set(uint32(0)) //nolint:errcheck // they are no longer read
	stop := context.AfterFunc(ctx, func() { _ = reader.Flush() })
	defer stop()
	return c.follow(ctx, reader, before, yield)
}

// follow sleeps until there are copies, then reads once per gather until there are none.
func (c *Copies) follow(ctx context.Context, reader *ringbuf.Reader, before uint64, yield func([]report.ConnectionCopy, uint64)) error {
	var list []report.ConnectionCopy
	for ctx.Err() == nil {
		var err error
		reader.SetDeadline(time.Time{})
		if list, err = c.read(reader, list[:0], 1); err != nil {
			return err
		}
		reader.SetDeadline(time.Unix(1, 0))
		if list, err = c.read(reader, list, watchBatch); err != nil {
			return err
		}
		lost, err := c.lost()
		if err != nil {
			return err
		}
		yield(list, lost-before)
		if len(list) < watchBatch {
			time.Sleep(gather)
		}
	}
	return nil
}

// read appends copies until there are most, or the reader waits no longer.
func (c *Copies) read(reader *ringbuf.Reader, list []report.ConnectionCopy, most int) ([]report.ConnectionCopy, error) {
	var record ringbuf.Record
	for len(list) < most {
		switch err := reader.ReadInto(&record); {
		case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed):
			return list, nil
		case err != nil:
			return list, fmt.Errorf("read copies of connections: %w", err)
		}
		row, err := rowOf(record.RawSample)
		if err != nil {
			return list, err
		}
		if one, ok := c.describe(row); ok {
			one.Idle += waited(row)
			list = append(list, one)
		} else if most == 1 {
			return list, nil
		}
	}
	return list, nil
}

// waited returns how long a copy has waited in the ring. If this process was stopped, another node
// may have opened the next connection since. The kernel's clock may be slightly ahead.
func waited(row *bpf.TcConnectionCopy) time.Duration {
	now := uint32(monotime.Uptime() >> bpf.TcCopyLimitCOPY_TIME_SHIFT)
	return time.Duration(max(int32(now-row.Made), 0)) << bpf.TcCopyLimitCOPY_TIME_SHIFT
}

// rowOf returns the row in a record, which is valid as long as the record.
func rowOf(raw []byte) (*bpf.TcConnectionCopy, error) {
	if len(raw) < int(unsafe.Sizeof(bpf.TcConnectionCopy{})) {
		return nil, fmt.Errorf("read copies of connections: one has %d bytes, not %d", len(raw), unsafe.Sizeof(bpf.TcConnectionCopy{}))
	}
	return (*bpf.TcConnectionCopy)(unsafe.Pointer(unsafe.SliceData(raw))), nil
}

// lost returns the number of copies that found the ring full, over all rings so far.
func (c *Copies) lost() (sum uint64, err error) {
	var each []bpf.TcOmittedCounts
	if err := c.shared.Maps.UntoldCounts.Lookup(uint32(bpf.TcRingCOPIES), &each); err != nil {
		return 0, fmt.Errorf("count lost copies of connections: %w", err)
	}
	for _, n := range each {
		sum += n.Lost
	}
	return sum, nil
}
