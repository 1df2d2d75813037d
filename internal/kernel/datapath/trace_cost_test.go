package datapath

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// costBlock is how often each program runs, alternately, for one mean: of 60,000 packets 600 are
// compared with the filters, or one in a hundred.
const costBlock = 300

// costCase is a program, and what is traced meanwhile.
type costCase struct {
	name    string
	program *ebpf.Program
	share   float64 // of the packets that are compared with filters
	shown   bool    // to a reader
	turns   [bpf.TcTraceLimitTRACE_CPUS]bpf.TcTraceTurn
	means   []float64 // in ns, one for each block
}

// BenchmarkTraced compares an established packet with the normal program and with the one that
// replaces it during traces: without a packet being compared with filters, with one in a hundred,
// and with each, which match no filter or are shown. The calls alternate; the results are medians
// of blocks.
func BenchmarkTraced(b *testing.B) {
	d, err := Load(Config{Connections: 262144})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	twin, err := d.collection.LoadTracing(false, false)
	if err != nil {
		b.Fatal(err)
	}
	defer twin.Close()
	defer startTrace(b, d)()
	cases := []*costCase{
		{name: "empty", program: emptyProgram(b, ebpf.SchedCLS)}, {name: "nobody", program: program(b, d)}, {name: "waits", program: twin},
		{name: "1%-others", program: twin, share: 0.01}, {name: "1%", program: twin, share: 0.01, shown: true},
		{name: "all-others", program: twin, share: 1}, {name: "all", program: twin, share: 1, shown: true},
	}
	for _, c := range cases {
		for i := range c.turns {
			c.turns[i] = bpf.TcTraceTurn{Left: map[bool]uint32{true: math.MaxUint32, false: uint32(i + 1)}[c.share == 0], Random: uint32(i + 1)}
		}
	}
	for b.Loop() {
		b.StopTimer()
		epoch := dptest.Jiffies(b) >> 13
		frame := ring(b, d, 2, false)
		sums := make([]time.Duration, len(cases))
		b.StartTimer()
		for call := range costBlock {
			for i, c := range cases {
				sums[i] += c.timed(b, d, frame(call))
			}
		}
		if dptest.Jiffies(b)>>13 == epoch { // otherwise next hops were looked up again
			for i, c := range cases {
				c.means = append(c.means, float64(sums[i].Nanoseconds())/costBlock)
			}
		}
	}
	for _, c := range cases {
		slices.Sort(c.means)
		b.ReportMetric(c.means[len(c.means)/2], c.name+"-ns")
		b.ReportMetric(c.means[len(c.means)/4], c.name+"-q1")
		b.ReportMetric(c.means[len(c.means)*3/4], c.name+"-q3")
	}
	b.ReportMetric(0, "ns/op")
}

// timed restores the variables that this case has left, and measures a call.
func (c *costCase) timed(b *testing.B, d *Datapath, frame []byte) time.Duration {
	b.Helper()
	v := &d.collection.Variables
	filter, most := bpf.TcTraceFilter{On: 1, Sample: math.MaxUint32, VipPorts: [2]uint16{0, math.MaxUint16}, Verdicts: math.MaxUint8}, uint32(math.MaxUint32)
	if !c.shown {
		filter.Host.Word[3], filter.HostMask.Word[3] = 1, math.MaxUint32
	}
	if c.share > 0 {
		most = uint32((2/c.share - 1) * (1 << bpf.TcTraceLimitTRACE_TURN_SHIFT))
	}
	if err := v.TraceFilters.Set([bpf.TcRingMAX_TRACES]bpf.TcTraceFilter{filter}); err != nil {
		b.Fatal(err)
	}
	_, _ = v.TraceTurnMost.Set(most), v.TraceTurns.Set(c.turns) // memory-mapped, never fails
	took := timed(b, c.program, frame)
	_ = v.TraceTurns.Get(&c.turns)
	return took
}

// startTrace reads traced packets until the returned function is called.
func startTrace(b *testing.B, d *Datapath) (end func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	begun, ended := make(chan bool, 1), make(chan error, 1)
	go func() {
		ended <- d.TracePackets(ctx, report.TraceFilter{Sample: 0.01}, func([]report.PacketTrace, report.Omitted) bool {
			select {
			case begun <- true:
			default:
			}
			return true
		})
	}()
	<-begun
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}
