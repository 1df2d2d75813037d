package datapath

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/observe"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/await"
	"loxilb/test/dptest"
)

// TestNoTraceInstructions checks that the normal programs contain no instruction for traces.
func TestNoTraceInstructions(t *testing.T) {
	t.Parallel()
	for _, read := range []func() (*ebpf.CollectionSpec, error){bpf.LoadTc, bpf.LoadXdp} {
		spec, err := read()
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range spec.Programs {
			for i := range p.Instructions {
				ins := &p.Instructions[i]
				if ins.IsFunctionReference() && strings.HasPrefix(ins.Reference(), "trace_") || ins.Reference() == "trace_turns" {
					t.Errorf(`%s: got %v, want not ins.IsFunctionReference() or ins.Reference() does not begin with "trace_", `+
						`ins.Reference() != "trace_turns"`,
						name, ins)
				}
			}
		}
	}
}

// TestTracingVariables checks that programs with tracing have the same variables and constants as
// the normal ones, at the same offsets, since they share the memory. The same holds for the
// programs at tc and XDP.
func TestTracingVariables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		one, other func() (*ebpf.CollectionSpec, error)
		sections   []string
	}{
		{bpf.LoadTc, bpf.LoadTcTrace, []string{".rodata", ".data.runtime", ".data.shared"}},
		{bpf.LoadXdp, bpf.LoadXdpTrace, []string{".rodata", ".data.runtime", ".data.shared"}},
		{bpf.LoadTc, bpf.LoadXdp, []string{".data.shared"}},
	} {
		one, err1 := c.one()
		other, err2 := c.other()
		if err1 != nil || err2 != nil {
			t.Fatalf("got %v %v, want no error", err1, err2)
		}
		found := 0
		for name, v := range one.Variables {
			if !slices.Contains(c.sections, v.SectionName) {
				continue
			}
			found++
			if w := other.Variables[name]; w == nil || w.SectionName != v.SectionName || w.Offset != v.Offset || w.Size() != v.Size() {
				t.Errorf("%s is elsewhere: %+v, %+v", name, v, w)
			}
		}
		if found < 3 {
			t.Errorf("%d variables", found)
		}
	}
}

// TestTraceUnread checks that a client that does not read for a while later gets the packets that
// fit the buffer, and the number of lost ones.
func TestTraceUnread(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	p, err := o.d.collection.LoadTracing(false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	frame := segment(netip.MustParseAddrPort("198.51.100.1:2000"), netip.MustParseAddrPort("10.0.0.1:80"), tcpSYN, isn, 0)
	waited := false
	traced(t, o, report.TraceFilter{Sample: 1}, func() {
		if waited {
			return
		}
		waited = true
		var end uint32
		if err := o.d.collection.Variables.TraceUntil.Get(&end); err != nil {
			t.Error(err)
		}
		await.True(t, 15*time.Second, "the trace outlives that of an ended process", func() bool {
			return int32(dptest.Jiffies(t)-end) > 0
		})
		if _, _, err := p.Benchmark(frame, 1, nil); err != nil {
			t.Error(err)
		}
	})
}

// slowPrograms takes some jiffies to exchange programs.
type slowPrograms struct {
	t     *testing.T
	ended uint32 // jiffies
}

func (p *slowPrograms) Trace(bool) error {
	began := dptest.Jiffies(p.t)
	await.True(p.t, 15*time.Second, "jiffies do not pass", func() bool {
		p.ended = dptest.Jiffies(p.t)
		return p.ended-began > 20
	})
	return nil
}

// TestTraceBegins checks that packets are shown from the beginning of the stream on, however long
// it took to exchange the programs.
func TestTraceBegins(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	slow := &slowPrograms{t: t}
	err := observe.NewTracer(o.d.collection, slow).TracePackets(t.Context(), report.TraceFilter{Sample: 1}, func([]report.PacketTrace, report.Omitted) bool {
		var until uint32
		if err := o.d.collection.Variables.TraceUntil.Get(&until); err != nil {
			t.Error(err)
		}
		if left, want := int32(until-slow.ended), int32(o.d.collection.Jiffies(5*time.Second))-5; left < want {
			t.Errorf("programs trace for %d jiffies after their exchange, want %d", left, want)
		}
		return false
	})
	if err != nil {
		t.Error(err)
	}
}

// traced runs a frame through a program until it is shown, and returns the first result.
func traced(t testing.TB, o *opener, f report.TraceFilter, run func()) (got report.PacketTrace) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := o.d.TracePackets(ctx, f, func(list []report.PacketTrace, _ report.Omitted) bool {
		if len(list) == 0 {
			run()
			return true
		}
		got = list[0]
		got.Before.Data, got.After.Data = slices.Clone(got.Before.Data), slices.Clone(got.After.Data)
		return false
	})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("not shown: %v", err)
	}
	return got
}

// TestTraceProgram checks that a packet is shown as it arrived and as it left, with a VLAN tag that
// the kernel keeps outside of the packet, and only to clients whose filter it matches.
func TestTraceProgram(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	p, err := o.d.collection.LoadTracing(false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	client := netip.MustParseAddrPort("198.51.100.1:2000")
	send := func(to string) func() {
		frame := segment(client, netip.MustParseAddrPort(to), tcpSYN, isn, 0)
		return func() {
			if _, _, err := p.Benchmark(frame, 1, nil); err != nil {
				t.Error(err)
			}
		}
	}
	got := traced(t, o, report.TraceFilter{Sample: 1, VIP: netip.MustParseAddr("10.0.0.1"), VIPPorts: [2]uint16{80, 80}, Protocol: lb.TCP}, send("10.0.0.1:80"))
	if got.Verdict != report.TraceDrop || got.Reason != "no-route" && got.Reason != "forwarding-off" || got.In != 1 ||
		got.Point != "ingress" || got.Took <= 0 || len(got.After.Data) > 0 {
		t.Errorf("got %+v, want a drop for want of a route at ingress, with its time", got)
	}
	if want := segment(client, netip.MustParseAddrPort("10.0.0.1:80"), tcpSYN, isn, 0); string(got.Before.Data) != string(want) || got.Before.Length != len(want) {
		t.Errorf("the packet before translation is %x, want %x", got.Before.Data, want)
	}
	got = traced(t, o,
		report.TraceFilter{Sample: 1, Verdict: report.TracePass, Host: netip.MustParsePrefix("198.51.100.0/24"), Port: 81},
		func() { send("10.0.0.1:80")(); send("10.0.0.1:81")() })
	if got.Verdict != report.TracePass || string(got.Before.Data) != string(got.After.Data) {
		t.Errorf("got %+v, want got.Verdict == report.TracePass, string(got.Before.Data) == string(got.After.Data)",
			got)
	}
}

// TestTraceSample checks that about the sampled share of many packets is shown, for several shares
// at once.
func TestTraceSample(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	p, err := o.d.collection.LoadTracing(false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	frame := dptest.UDPFrame(netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("10.0.0.9"), 1, 2)
	const packets = 40_000
	var shown [2]atomic.Int64
	ended := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan bool, 2)
	for i, share := range []float64{0.02, 0.005} {
		go func() {
			first := true
			ended <- o.d.TracePackets(ctx, report.TraceFilter{Sample: share}, func(list []report.PacketTrace, u report.Omitted) bool {
				if first {
					first = false
					begun <- true
				}
				shown[i].Add(int64(len(list)) + int64(u.Lost))
				return true
			})
		}()
	}
	<-begun
	<-begun
	for range packets / 1000 {
		if _, _, err := p.Benchmark(frame, 1000, nil); err != nil {
			t.Fatal(err)
		}
	}
	// several times the interval at which the rings are read
	await.Quiet(t, 20*time.Second, 50*time.Millisecond, func() int64 { return shown[0].Load() + shown[1].Load() })
	cancel()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
	for i, want := range []int64{packets * 2 / 100, packets / 200} {
		if n := shown[i].Load(); n < want/2 || n > want*2 {
			t.Errorf("%d packets were shown, want about %d", n, want)
		}
	}
}
