package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/report"
)

const (
	// tracePeriod is the interval of reading a ring: the packet path does not wake readers.
	tracePeriod = 10 * time.Millisecond
	// traceBatch is the number of packets passed on at a time: 25,600 per second, which takes a
	// fifth of a CPU. More are lost.
	traceBatch = 256
	// traceRingBytes is the size of a ring: some 2,300 packets.
	traceRingBytes = 1 << 20
	// renewInterval is the interval of renewing a trace, and renewDuration how long the programs
	// then trace.
	renewInterval = time.Second
	renewDuration = 5 * time.Second
)

// ErrTooManyTraces reports that the maximum number of traces is running.
var ErrTooManyTraces = fmt.Errorf("%d traces are running, which is the limit", bpf.TcRingMAX_TRACES)

// TracingPrograms are programs that can be replaced by tracing ones.
type TracingPrograms interface{ Trace(on bool) error }

// Tracer shows packets as they arrive and as they leave, and how they were handled
// (bpf/observe/trace.h), to several callers at once.
type Tracer struct {
	shared   *loader.Collection
	programs []TracingPrograms

	mu      sync.Mutex
	filters [bpf.TcRingMAX_TRACES]bpf.TcTraceFilter
	shares  [bpf.TcRingMAX_TRACES]float64 // of the packets, to sample
	began   time.Time                     // when the clock was ticks
	ticks   uint32
}

// NewTracer shows nothing yet.
func NewTracer(c *loader.Collection, programs ...TracingPrograms) *Tracer {
	return &Tracer{shared: c, programs: programs}
}

// TracePackets calls yield frequently with packets that match the filter, and with the number lost
// so far, until ctx ends or yield returns false. The packets are valid until yield returns.
func (t *Tracer) TracePackets(ctx context.Context, f report.TraceFilter, yield func([]report.PacketTrace, report.Omitted) bool) (err error) {
	filter, err := t.filter(&f)
	if err != nil {
		return err
	}
	r, err := openRing(t.shared, "trace", traceRingBytes)
	if err != nil {
		return err
	}
	defer r.close()
	number, err := t.begin(filter, f.Sample, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.end(number, r)) }()
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	go t.keepAlive(keeping) // regardless of yield: a client that does not read gets the number of lost packets
	in := traceDecoder{reasons: t.shared.DropReasons()}
	read := func() ([]report.PacketTrace, error) { return readRows(r, nil, traceBatch, in.describe) }
	return follow(ctx, r, tracePeriod, 0, read, func(list []report.PacketTrace, omitted report.Omitted) bool {
		return yield(list, report.Omitted{Lost: omitted.Lost}) // sampling omits the rest
	})
}

// keepAlive keeps the programs tracing until ctx ends.
func (t *Tracer) keepAlive(ctx context.Context) {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.mu.Lock()
		t.renew()
		t.mu.Unlock()
	}
}

// begin makes the programs write to a ring.
func (t *Tracer) begin(f bpf.TcTraceFilter, share float64, r *ring) (number int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	number, first := -1, true
	for i := range t.filters {
		switch {
		case t.filters[i].On != 0:
			first = false
		case number < 0:
			number = i
		}
	}
	if number < 0 {
		return 0, ErrTooManyTraces
	}
	if first {
		if t.ticks, err = loader.Now(); err != nil {
			return 0, err
		}
		t.began = time.Now()
	}
	if err := r.attach(ringOf(number)); err != nil {
		return 0, err
	}
	t.filters[number], t.shares[number] = f, share
	err = t.write()
	if err == nil && first {
		err = t.exchange(true)
	}
	if err != nil {
		return 0, errors.Join(err, t.endLocked(number, r))
	}
	t.renew() // after the exchange, which may take longer than renewDuration
	return number, nil
}

// end stops the programs from writing to a ring.
func (t *Tracer) end(number int, r *ring) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endLocked(number, r)
}

func (t *Tracer) endLocked(number int, r *ring) error {
	t.filters[number], t.shares[number] = bpf.TcTraceFilter{}, 0
	err := t.write()
	last := true
	for i := range t.filters {
		last = last && t.filters[i].On == 0
	}
	if last {
		err = errors.Join(err, t.exchange(false))
	}
	return errors.Join(err, r.detach())
}

func ringOf(number int) uint32 { return uint32(bpf.TcRingFIRST_TRACE) + uint32(number) }

// exchange replaces the programs by tracing ones, or restores them.
func (t *Tracer) exchange(on bool) error {
	var errs []error
	for _, p := range t.programs {
		errs = append(errs, p.Trace(on))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("load the programs that trace packets: %w", err)
	}
	return nil
}

// write writes the filters. The largest share determines the sampling; smaller ones select from the
// samples.
func (t *Tracer) write() error {
	largest := slices.Max(t.shares[:])
	for i := range t.filters {
		t.filters[i].Sample = sampleOf(t.shares[i], largest)
	}
	v := &t.shared.Variables
	err := errors.Join(v.TraceFilters.Set(t.filters), v.TraceTurnMost.Set(largestGap(largest)), v.TraceTurns.Set([bpf.TcTraceLimitTRACE_CPUS]bpf.TcTraceTurn{}))
	if err != nil {
		return fmt.Errorf("write the trace's filter: %w", err)
	}
	return nil
}

// renew makes the programs trace for renewDuration, so the traces of a killed process end.
func (t *Tracer) renew() {
	until := t.ticks + t.shared.Jiffies(time.Since(t.began)+renewDuration)
	_ = t.shared.Variables.TraceUntil.Set(until) // memory
}
