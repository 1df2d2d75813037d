package observe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/report"
)

// ring is a ring buffer that the packet path fills, identified by a number. The packet path does
// not wake readers, so the ring is polled.
type ring struct {
	shared *loader.Collection
	buffer *ebpf.Map
	reader *ringbuf.Reader
	number uint32
	before report.Omitted // of earlier rings with the number
}

// openRing makes a ring. It is unused until attach.
func openRing(c *loader.Collection, name string, size uint32) (*ring, error) {
	buffer, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.RingBuf, MaxEntries: size})
	if err != nil {
		return nil, fmt.Errorf("make ring %s: %w", name, err)
	}
	reader, err := ringbuf.NewReader(buffer)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read ring %s: %w", name, err), buffer.Close())
	}
	return &ring{shared: c, buffer: buffer, reader: reader}, nil
}

// attach makes the packet path write to the ring.
func (r *ring) attach(number uint32) (err error) {
	r.number, r.before = number, report.Omitted{}
	if r.before, err = r.omitted(); err != nil {
		return err
	}
	if err := r.shared.Maps.Watchers.Put(number, r.buffer); err != nil {
		return fmt.Errorf("attach ring %d: %w", number, err)
	}
	return nil
}

// detach undoes attach.
func (r *ring) detach() error { return r.shared.Maps.Watchers.Delete(r.number) }

func (r *ring) close() {
	r.reader.Close()
	r.buffer.Close()
}

// omitted returns the number of packets omitted or lost since the ring was attached.
func (r *ring) omitted() (sum report.Omitted, err error) {
	var each []bpf.TcOmittedCounts
	if err := r.shared.Maps.UntoldCounts.Lookup(r.number, &each); err != nil {
		return sum, fmt.Errorf("count the losses of ring %d: %w", r.number, err)
	}
	for _, n := range each {
		sum.Sampled += n.Sampled
		sum.Lost += n.Lost
	}
	return report.Omitted{Sampled: sum.Sampled - r.before.Sampled, Lost: sum.Lost - r.before.Lost}, nil
}

// follow reads once per period, and yields the result with the numbers omitted or lost, until ctx
// ends or yield returns false. After at least full rows it reads again immediately; 0: never.
func follow[T any](ctx context.Context, r *ring, period time.Duration, full int, read func() ([]T, error), yield func([]T, report.Omitted) bool) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for more := true; more; {
			list, err := read()
			if err != nil {
				return err
			}
			omitted, err := r.omitted()
			if err != nil {
				return err
			}
			if !yield(list, omitted) {
				return nil
			}
			more = full > 0 && len(list) == full && ctx.Err() == nil
		}
	}
}

// readRows appends available rows to list, up to most, without waiting. boot is the time at which
// the clock of the packet path was 0.
func readRows[Row, T any](r *ring, list []T, most int, describe func(row *Row, boot time.Time) T) ([]T, error) {
	boot := bootTime()
	r.reader.SetDeadline(time.Unix(1, 0))
	var record ringbuf.Record
	for len(list) < most {
		err := r.reader.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read ring %d: %w", r.number, err)
		}
		row := new(Row)
		size := int(unsafe.Sizeof(*row))
		if len(record.RawSample) < size {
			return nil, fmt.Errorf("read ring %d: a row has %d bytes, not %d", r.number, len(record.RawSample), size)
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(row)), size), record.RawSample)
		list = append(list, describe(row, boot))
	}
	return list, nil
}

// withTag returns a frame with its VLAN tag, which the kernel stores outside of the frame.
func withTag(frame []byte, protocol, tci uint16) []byte {
	const macs = 12 // the size of both addresses
	if len(frame) < macs {
		return frame
	}
	tagged := make([]byte, 0, len(frame)+4)
	tagged = binary.NativeEndian.AppendUint16(append(tagged, frame[:macs]...), protocol)
	return append(binary.BigEndian.AppendUint16(tagged, tci), frame[macs:]...)
}
