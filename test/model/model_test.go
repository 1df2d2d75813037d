package model

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

func TestMain(m *testing.M) {
	flag.Uint64("seed", 0, "run the sequence of this seed alone")
	flag.Int("sequences", 150, "how many random sequences to run")
	flag.Bool("xdp", true, "have XDP forward what it can, too")
	os.Exit(m.Run())
}

func flagValue[T any](name string) T { return flag.Lookup(name).Value.(flag.Getter).Get().(T) }

// TestModel runs random sequences of packets, time and changes of services through the program and
// the model. It compares every packet that leaves, the table of connections and the counters. Each
// packet also runs through the XDP program first, which must give the same result, and must pass
// the address filter before its connection is looked up.
//
// V199 random packets compared with a Go model
func TestModel(t *testing.T) {
	t.Parallel()
	runSequences(t, false, flagValue[int]("sequences"))
}

// TestModelInFlood is TestModel during a simulated flood, in which the program challenges SYNs
// before it looks up their connections.
func TestModelInFlood(t *testing.T) {
	t.Parallel()
	runSequences(t, true, flagValue[int]("sequences")/2)
}

func runSequences(t *testing.T, flood bool, sequences int) {
	seeds := make(chan uint64)
	failures := make(chan string)
	workers := min(4, runtime.NumCPU())
	for range workers {
		go runWorker(flood, seeds, failures)
	}
	go func() {
		defer close(seeds)
		if seed := flagValue[uint64]("seed"); seed != 0 {
			seeds <- seed
			return
		}
		first := rand.Uint64N(1 << 40)
		t.Logf("seeds %d and up", first+1)
		for i := range sequences {
			seeds <- first + 1 + uint64(i)
		}
	}()
	for range workers {
		for f := range failures {
			if f == "" {
				break // the worker has ended
			}
			t.Error(f)
		}
	}
}

// runWorker runs sequences in its own namespace until none is left, or one fails.
func runWorker(flood bool, seeds <-chan uint64, failures chan<- string) {
	runtime.LockOSThread() // never unlocked: the namespace ends with the thread
	defer func() { failures <- "" }()
	l, err := lab.New(lab.Config{XDP: flagValue[bool]("xdp"), ForeignFirst: true, ChallengeFirst: flood, Connections: Connections, HalfOpen: HalfOpen})
	if err != nil {
		failures <- err.Error()
		return
	}
	defer l.Close()
	if err := errors.Join(countFromHere(l), l.LimitPorts(Ports)); err != nil {
		failures <- err.Error()
		return
	}
	failed := false
	for seed := range seeds {
		if failed {
			continue
		}
		ops := Generate(seed, 60)
		if err := run(l, flood, ops); err != nil {
			ops = shrink(l, flood, ops)
			again := run(l, flood, ops)
			if again == nil {
				again = fmt.Errorf("not again; the first time: %w", err)
			}
			failures <- failureScript(l, seed, ops, again)
			failed = true
		}
	}
}

// countFromHere creates a service with limits, so the program counts open connections from then on.
func countFromHere(l *lab.Lab) error {
	s, err := lb.ParseService("10.0.0.1:80/tcp max-connections=1 endpoints=192.168.1.10:80")
	if err != nil {
		return err
	}
	return l.Apply(s)
}

// slowest is the longest time that a sequence may take: the model's clock stands still meanwhile,
// and its knowledge of ends is no more precise (Model.Close).
const slowest = 2 * time.Second

// run runs a sequence through both, and returns the first difference. If the machine is too busy,
// it retries, and finally gives no verdict.
func run(l *lab.Lab, flood bool, ops []Op) error {
	for range 5 {
		began := time.Now()
		if err := runOnce(l, flood, ops); err == nil || time.Since(began) < slowest {
			return err
		}
	}
	return nil
}

// runOnce stops where a connection is about to end, or where the order of a sweep decides, as the
// model does not know the result. The latter happens only in sequences that shrink has cut.
func runOnce(l *lab.Lab, flood bool, ops []Op) error {
	if err := l.Reset(); err != nil {
		return err
	}
	m := New()
	m.Flood = flood
	for i, o := range ops {
		if o.Sweep && m.SweepsInOrder() {
			return nil
		}
		if err := step(l, m, o.Resolve(m)); err != nil {
			return fmt.Errorf("after line %d: %w", i+1, err)
		}
		if m.NearTimeout() {
			return nil
		}
		if o.Sweep && i%3 == 0 || i == len(ops)-1 { // reading the table is the most expensive
			if err := compareTables(l, m); err != nil {
				return fmt.Errorf("after line %d: %w", i+1, err)
			}
		}
	}
	counted, err := l.Counted()
	if err == nil && counted != "" {
		err = fmt.Errorf("counted although nothing was dropped: %s", counted)
	}
	return err
}

// step applies an op to both. The program goes first: where it chooses at random, the model uses
// the same choice.
func step(l *lab.Lab, m *Model, o Op) error {
	if o.Packet == nil {
		o.Do(m)
		return apply(l, o)
	}
	link, err := l.Link(o.Link)
	if err != nil {
		return err
	}
	p := l.Arriving(link, o.Packet)
	// The model does not simulate which buckets such a packet visits; TestTableWithoutSweeps tests
	// that.
	if err := l.Programs().HoldReclaim(); err != nil {
		return err
	}
	res, err := l.Send(link, p.Build())
	if err != nil {
		return err
	}
	m.drawnPort, m.number = 1, 0 // not free
	if res.Reason == "challenged" {
		m.number = uint32(pkt.Decode(res.Frame).Num(pkt.Ack))
	}
	if res.Verdict == "out" {
		if m.drawnPort = uint16(pkt.Decode(res.Frame).Num(pkt.SrcPort)); p.Has(pkt.Type) {
			m.drawnPort = uint16(pkt.Decode(res.Frame).Num(pkt.EchoID))
		}
	}
	want := o.Do(m)
	if m.doubt {
		return nil
	}
	return compare(l, p, want, res)
}

func apply(l *lab.Lab, o Op) error {
	switch {
	case o.Service != nil:
		return l.Apply(*o.Service)
	case o.Delete != nil:
		if _, ok := l.Stats(*o.Delete); !ok {
			return nil // shrinking has removed the line that creates it
		}
		return l.Delete(*o.Delete)
	case o.Advance != 0:
		return l.Advance(o.Advance)
	case o.Sweep:
		return l.Sweep()
	case o.Mark != nil:
		l.Mark(*o.Mark)
	}
	return nil
}

// compare compares the results for a packet.
func compare(l *lab.Lab, p *pkt.Packet, want Verdict, res lab.Result) error {
	if want.Answer != pkt.Raw && res.Verdict == "out" && res.Reason == want.Reason {
		return compareAnswer(p, want, pkt.Decode(res.Frame))
	}
	if res.Verdict != want.Name || res.Reason != want.Reason || want.Answer != pkt.Raw {
		return fmt.Errorf("the program's verdict is %s %s, the model's %s %s", res.Verdict, res.Reason, want.Name, want.Reason)
	}
	frame := p.Build()
	switch {
	case want.Name == "drop":
		return nil
	case want.Reason == "challenged":
		out, err := l.Link(linkOf(p.SrcAddr().Addr()))
		if err != nil {
			return err
		}
		q, err := l.Leaving(out, p, challengeOf(p, pkt.Decode(res.Frame).Num(pkt.Ack)), nil, nil)
		if err != nil {
			return err
		}
		frame = q.Build()
	case want.Name == "out":
		out, err := l.Link(linkOf(want.Hop))
		if err != nil {
			return err
		}
		q, err := l.Leaving(out, p, want.change(p, l.NextHop(out, want.Hop)), pkt.Decode(res.Frame), nil)
		if err != nil {
			return err
		}
		frame = q.Build()
	}
	if !bytes.Equal(frame, res.Frame) {
		return fmt.Errorf("another packet:\n%s", pkt.Diff(pkt.Decode(frame), pkt.Decode(res.Frame), nil))
	}
	return nil
}

// compareAnswer checks that the reply to the sender of a dropped packet is well formed, and refers
// to that packet.
func compareAnswer(p *pkt.Packet, want Verdict, q *pkt.Packet) error {
	bad := func(what string) error { return fmt.Errorf("the answer to %s has %s: %s", p, what, q) }
	switch {
	case q.Proto != want.Answer:
		return bad("another protocol")
	case q.Has(pkt.Sum) || q.Has(pkt.IPSum):
		return bad("a wrong checksum")
	case q.DstAddr().Addr() != p.SrcAddr().Addr():
		return bad("another destination")
	case q.Proto == pkt.TCP:
		return compareReset(p, q, bad)
	case q.Inner == nil || q.Inner.SrcAddr() != p.SrcAddr() || q.Inner.DstAddr() != p.DstAddr():
		return bad("another quote")
	}
	return nil
}

func compareReset(p, q *pkt.Packet, bad func(string) error) error {
	seq, ack, flags := uint32(0), seqEnd(p), uint64(pkt.FlagRST|pkt.FlagACK)
	if p.Num(pkt.Flags)&pkt.FlagACK != 0 {
		seq, ack, flags = uint32(p.Num(pkt.Ack)), 0, pkt.FlagRST
	}
	switch {
	case q.Num(pkt.Flags) != flags:
		return bad("other flags")
	case uint32(q.Num(pkt.Seq)) != seq || uint32(q.Num(pkt.Ack)) != ack:
		return bad("other numbers")
	case q.SrcAddr() != p.DstAddr() || q.DstAddr() != p.SrcAddr():
		return bad("other addresses")
	}
	return nil
}

// comparePressure compares how many connections are half-open, and how many entries there are.
func comparePressure(l *lab.Lab, m *Model) error {
	p, err := l.Datapath.Fullness()
	if err != nil {
		return err
	}
	tcp, others := m.HalfOpen()
	if p.HalfOpenTCP != tcp || p.HalfOpenOthers != others || p.Entries != int64(len(m.table)) {
		return fmt.Errorf("the program counts %d and %d half-open connections and %d entries, the model %d, %d and %d",
			p.HalfOpenTCP, p.HalfOpenOthers, p.Entries, tcp, others, len(m.table))
	}
	return nil
}

// compareTables compares connections and counters.
func compareTables(l *lab.Lab, m *Model) error {
	got, err := l.DumpConnections()
	if err != nil {
		return err
	}
	var want []string
	for _, c := range m.Connections() {
		want = append(want, lab.FormatConnection(c))
	}
	slices.Sort(want)
	if !slices.Equal(want, got) {
		diff := cmp.Diff(want, got)
		return fmt.Errorf("connections, - model, + program:\n%s", diff)
	}
	if err := comparePressure(l, m); err != nil {
		return err
	}
	for _, key := range m.keys() {
		want, err := m.Stats(key)
		if err != nil {
			return err
		}
		got, _ := l.Stats(key)
		if err := takeHandshakes(&got); err != nil {
			return fmt.Errorf("counters of %s: %w", key, err)
		}
		if !reflect.DeepEqual(want, got) {
			diff := cmp.Diff(want, got)
			return fmt.Errorf("counters of %s, - model, + program:\n%s", key, diff)
		}
	}
	return nil
}

// takeHandshakes removes handshakes from counters: the model does not have them, and scripts of
// test/packet check them.
func takeHandshakes(s *report.ServiceStats) error {
	var sum report.Handshakes
	for i := range s.Endpoints {
		h := &s.Endpoints[i].Handshakes
		sum.Add(h)
		*h = report.Handshakes{}
	}
	if h := &s.Handshakes; h.Opened < sum.Opened || h.AllAnswered() < sum.AllAnswered() || h.Repeated < sum.Repeated || h.Failed() < sum.Failed() {
		return fmt.Errorf("%+v is less than the endpoints' %+v", *h, sum)
	}
	s.Handshakes = report.Handshakes{}
	return nil
}

// shrink removes lines as long as the sequence still fails.
func shrink(l *lab.Lab, flood bool, ops []Op) []Op {
	for again := true; again; {
		again = false
		for i := len(ops) - 1; i >= 0; i-- {
			fewer := slices.Delete(slices.Clone(ops), i, i+1)
			if run(l, flood, fewer) != nil {
				ops, again = fewer, true
			}
		}
	}
	return ops
}

// failureScript returns a failure as a packet script.
func failureScript(l *lab.Lab, seed uint64, ops []Op, err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %v\nas a script, with what the model says:\n\n", seed, err)
	m := New()
	for _, o := range ops {
		o = o.Resolve(m)
		v := o.Do(m)
		line := o.String()
		switch v.Name {
		case "drop":
			line = strings.Replace(line, "in ", "drop ", 1) + " reason=" + v.Reason
		case "pass":
			line = strings.Replace(line, "in ", "pass ", 1)
		case "out":
			if v.Reason != "" {
				line += " reason=" + v.Reason + "\nout " + linkOf(o.Packet.SrcAddr().Addr()) + " " + challengeOf(o.Packet, 0).String()
				break
			}
			mac := l.NextHop(l.Server, v.Hop) // scripts only state it for endpoints
			line += "\nout " + linkOf(v.Hop) + " " + v.change(o.Packet, mac).String()
		}
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// TestThereAndBack sends packets through a connection, and their mirror images back: each result is
// the mirror image of what was sent.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	errs := make(chan error)
	go func() {
		runtime.LockOSThread()
		errs <- thereAndBack(rand.Uint64())
	}()
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
}

func thereAndBack(seed uint64) (err error) {
	l, err := lab.New(lab.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, text := range []string{
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080,192.168.1.11:8081",
		"10.0.0.1:53/udp endpoints=192.168.1.10:5353,192.168.1.11:5354",
		"[2001:db8::1]:80/tcp endpoints=[2001:db8:2::10]:8080,[2001:db8:2::11]:8081",
		"[2001:db8::1]:53/udp endpoints=[2001:db8:2::10]:5353,[2001:db8:2::11]:5354",
	} {
		s, err := lb.ParseService(text)
		if err != nil {
			return err
		}
		if err := l.Apply(s); err != nil {
			return err
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 2000 {
		if err := mirror(l, r); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if i%100 == 0 { // keep the table from filling up
			if err := errors.Join(l.Advance(8000e9), l.Sweep()); err != nil {
				return err
			}
		}
	}
	return nil
}

// mirror opens a connection, and sends one packet in each direction.
func mirror(l *lab.Lab, r *rand.Rand) error {
	client := fmt.Sprintf("1.%d.%d.%d:%d", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(65536))
	vip := "10.0.0.1"
	if r.IntN(2) == 0 {
		client = fmt.Sprintf("[2001:db8:100::%x]:%d", r.IntN(65536), r.IntN(65536))
		vip = "[2001:db8::1]"
	}
	data := make([]byte, 1+r.IntN(60))
	for i := range data {
		data[i] = byte(r.IntN(256))
	}
	line := fmt.Sprintf("udp %s > %s:53 data %x", client, vip, data)
	if r.IntN(2) == 0 {
		line = fmt.Sprintf("tcp %s > %s:80 S seq %d ack %d win %d data %x", client, vip, r.Uint32(), r.Uint32(), r.IntN(65536), data)
	}
	p, err := pkt.Parse(line)
	if err != nil {
		return err
	}
	there, err := l.Send(l.Client, l.Arriving(l.Client, p).Build())
	if err != nil {
		return err
	}
	back, err := l.Send(l.Server, l.Arriving(l.Server, reverse(pkt.Decode(there.Frame))).Build())
	if err != nil {
		return err
	}
	if there.Verdict != "out" || back.Verdict != "out" {
		return fmt.Errorf("%s: %s %s there, %s %s back", line, there.Verdict, there.Reason, back.Verdict, back.Reason)
	}
	want, err := l.Leaving(l.Client, reverse(p), pkt.New(p.Proto).SetNum(pkt.TTL, 62), pkt.Decode(back.Frame), nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(want.Build(), back.Frame) {
		return fmt.Errorf("%s comes back as\n%s", line, pkt.Diff(pkt.Decode(want.Build()), pkt.Decode(back.Frame), nil))
	}
	return nil
}

// reverse swaps source and destination, and removes the link layer.
func reverse(p *pkt.Packet) *pkt.Packet {
	return p.Clone().SetSrc(p.DstAddr()).SetDst(p.SrcAddr()).Unset(pkt.From).Unset(pkt.To)
}
