package outlier

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const jiffy = 4 * time.Millisecond

// rig is a service whose endpoints have the handshakes that a test sets.
type rig struct {
	t         *testing.T
	d         *Detector
	now       time.Time
	rows      []report.HandshakeRow
	decisions []string
	checks    map[netip.AddrPort]Action
	tries     int
}

var web = lb.Key{VIP: netip.MustParseAddr("20.20.20.1"), Port: 80, Protocol: lb.TCP}

func newRig(t *testing.T, endpoints int) *rig {
	t.Helper()
	r := &rig{t: t, d: New(jiffy), now: time.Unix(1000, 0), checks: map[netip.AddrPort]Action{}}
	for i := range endpoints {
		r.rows = append(r.rows, report.HandshakeRow{Addr: at(i), ID: uint32(i)})
	}
	r.d.Watch([]Service{{Key: web, Resets: true}})
	r.tick()
	return r
}

func at(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
}

// tick makes the detector observe and decide. Its checks are not answered before a call of answer.
func (r *rig) tick() {
	r.d.Observe(web, r.rows)
	r.take(r.d.Decide(r.now))
	r.now = r.now.Add(ReadInterval)
}

func (r *rig) take(actions []Action) {
	for _, a := range actions {
		switch a.Kind {
		case Check:
			if _, there := r.checks[a.At]; there {
				r.t.Errorf("%s is checked twice at the same time", a.At)
			}
			r.checks[a.At] = a
		case Eject:
			r.note(map[bool]string{false: "out", true: "kept"}[a.Kept], a)
		case Return:
			r.note("back", a)
		case Try:
			r.tries++
		case AsymmetricReply:
			r.note("asymmetric", a)
		case ReplySeen:
			r.note("symmetric", a)
		}
	}
}

func (r *rig) note(what string, a Action) {
	r.decisions = append(r.decisions, strings.TrimSpace(fmt.Sprintf("%s %d %s", what, a.At.Addr().As4()[3], a.Evidence)))
}

// answer answers the check of an endpoint; "" means success.
func (r *rig) answer(i int, failure string) {
	r.t.Helper()
	if _, ok := r.checks[at(i)]; !ok {
		r.t.Fatalf("endpoint %d is not checked", i)
	}
	delete(r.checks, at(i))
	r.take(r.d.CheckEnded(at(i), failure, false, r.now))
}

// serve adds successful handshakes.
func (r *rig) serve(i int, n uint64) {
	r.rows[i].Count.Opened += n
	r.rows[i].Count.Answered[0] += n
	r.rows[i].Completed += uint32(n)
}

func (r *rig) want(decisions ...string) {
	r.t.Helper()
	if diff := cmp.Diff(decisions, r.decisions); diff != "" {
		r.t.Errorf("the decisions differ (-want +got):\n%s", diff)
	}
	r.decisions = nil
}

// untilCheck ticks until the first endpoint is checked, and returns how long that took.
func (r *rig) untilCheck() time.Duration {
	r.t.Helper()
	start := r.now
	for range 1000 {
		if _, ok := r.checks[at(0)]; ok {
			return r.now.Sub(start)
		}
		r.tick()
	}
	r.t.Fatal("the endpoint is never checked")
	return 0
}

// TestSilent checks that an endpoint that answers no SYNs is checked in time, and is out once the
// check fails.
func TestSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		syns uint64
		most time.Duration
		want string
	}{
		{"three SYNs", 3, 300 * time.Millisecond, "out 0 3 client SYNs without an answer in 0.2 s; loxilb's own check: no answer"},
		{"one SYN", 1, 500 * time.Millisecond, "out 0 1 client SYN without an answer in 0.4 s; loxilb's own check: no answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 2)
			r.serve(0, 5)
			r.serve(1, 5)
			r.tick()
			r.rows[0].Count.Opened += c.syns
			if d := r.untilCheck(); d > c.most {
				t.Errorf("the endpoint is checked after %s", d)
			}
			if a := r.checks[at(0)]; a.Timeout > 400*time.Millisecond {
				t.Errorf("the endpoint has %s to answer", a.Timeout)
			}
			r.answer(0, "no answer")
			r.want(c.want)
		})
	}
}

// TestSlow checks that an endpoint whose handshakes usually take long, or that had none before, is
// not checked before its answers are late.
func TestSlow(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.rows[0].Count.Opened, r.rows[0].Count.Answered[6] = 5, 5 // up to 256 ms
	r.tick()
	r.rows[0].Count.Opened += 3
	if d := r.untilCheck(); d < 2*time.Second {
		t.Errorf("the endpoint is checked after %s", d)
	}
	if a := r.checks[at(0)]; a.Timeout < 2*time.Second {
		t.Errorf("the endpoint has %s to answer", a.Timeout)
	}
}

// TestAnsweringEndpointStays checks that an endpoint that answers our own checks is not ejected,
// whatever happened to clients' SYNs: they may be a flood from forged addresses without a route, or
// a firewall may drop those of one client. It is reported once that clients get no answer.
func TestAnsweringEndpointStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	checked := 0
	for range 100 {
		r.rows[0].Count.Opened += 1000
		r.rows[0].Count.Repeated += 100
		r.tick()
		if _, ok := r.checks[at(0)]; ok {
			checked++
			r.answer(0, "")
		}
	}
	r.want("asymmetric 0")
	if checked == 0 || checked > 11 {
		t.Errorf("the endpoint is checked %d times in 10 s", checked)
	}
}

// TestSuccessMeanwhile checks that a failed check does not count if clients had success since it
// began.
func TestSuccessMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.rows[0].Count.Opened += 3
	r.untilCheck()
	r.serve(0, 4)
	r.tick()
	r.answer(0, "no answer")
	r.want()
}

// TestUndecided checks that a check that was not possible does not count, and is repeated.
func TestUndecided(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.rows[0].Count.Opened += 3
	r.untilCheck()
	delete(r.checks, at(0))
	r.take(r.d.CheckEnded(at(0), "cannot be probed: no descriptor", true, r.now))
	if d := r.untilCheck(); d < recheckDelay {
		t.Errorf("the endpoint is checked again after %s", d)
	}
	r.want()
}

// TestRefused checks that RSTs and ICMP errors in reply to SYNs make an endpoint suspect
// immediately.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.rows[0].Count.Opened, r.rows[0].Count.Refused, r.rows[0].Count.Unreachable = 3, 2, 1
	if d := r.untilCheck(); d > ReadInterval {
		t.Errorf("the endpoint is checked after %s", d)
	}
	r.answer(0, "connection refused")
	r.want("out 0 3 client SYNs refused or undeliverable in 0.2 s; loxilb's own check: connection refused")
}

// TestFailureRate checks that an endpoint that fails half of its connections is suspect although
// some succeed, if the service's other endpoints fail less often.
func TestFailureRate(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for range 10 {
		for i := range r.rows {
			r.serve(i, 2)
		}
		r.rows[0].Count.Opened += 3
		r.rows[0].Count.Refused += 3
		r.tick()
	}
	r.answer(0, "connection refused")
	if len(r.decisions) != 1 || !strings.Contains(r.decisions[0], " client SYNs ") || !strings.Contains(r.decisions[0], "failed") {
		t.Errorf(`got %q, want 1 element, " client SYNs " in r.decisions[0], "failed" in r.decisions[0]`, r.decisions)
	}
}

// TestResets checks that connections that are reset before an answer count only if their rate is
// higher than that of the other endpoints.
func TestResets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		resets [3]uint64 // among 4 connections of each endpoint
		counts bool
		want   []string
	}{
		{"one endpoint", [3]uint64{4, 0, 0}, true, []string{"out 0 4 of 4 client connections reset before an answer"}},
		{"a client that makes all of them reset", [3]uint64{4, 4, 4}, true, nil},
		{"too few", [3]uint64{1, 0, 0}, true, nil},
		{"where they do not count", [3]uint64{4, 0, 0}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			r.d.Watch([]Service{{Key: web, Resets: c.counts}})
			for i, n := range c.resets {
				r.serve(i, 4)
				r.rows[i].Count.Reset += n
			}
			r.tick()
			r.want(c.want...)
		})
	}
	alone := newRig(t, 3) // no connections of other endpoints to compare with
	alone.serve(0, 4)
	alone.rows[0].Count.Reset += 4
	alone.tick()
	alone.want()
}

// TestMostOut checks that at most half of the endpoints are out.
func TestMostOut(t *testing.T) {
	t.Parallel()
	for endpoints, most := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2, 10: 5} {
		r := newRig(t, endpoints)
		for range 30 {
			for i := range r.rows {
				r.rows[i].Count.Opened++
				if _, ok := r.checks[at(i)]; ok {
					r.answer(i, "no answer")
				}
			}
			r.tick()
		}
		out := map[byte]bool{}
		for a := range r.d.targets {
			if r.d.targets[a].out {
				out[a.Addr().As4()[3]] = true
			}
		}
		if len(out) != most {
			t.Errorf("of %d endpoints %d are out, want %d", endpoints, len(out), most)
		}
	}
}

// TestBackOff checks that an endpoint that is out is checked after 5 s, 10 s and so on up to five
// minutes, with one connection each, and returns after the first successful check. If it fails soon
// after that, the back-off continues to grow; after a long time in service it is 5 s again.
func TestBackOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	fail := func() {
		r.rows[0].Count.Opened += 3
		r.untilCheck()
		r.answer(0, "no answer")
	}
	fail()
	r.decisions = nil
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		r.rows = slices.Clone(r.rows)
		start := r.now
		for r.checks[at(0)].Timeout == 0 && r.now.Sub(start) < time.Hour {
			r.tick()
		}
		if d := r.now.Sub(start); d < want*time.Second || d > want*time.Second+2*ReadInterval {
			t.Errorf("the endpoint is checked after %s, want %s", d, want*time.Second)
		}
		r.answer(0, "no answer")
	}
	if n := len(r.decisions); n != 8 || !strings.HasSuffix(r.decisions[7], "loxilb's own check: no answer (9 tries)") {
		t.Errorf(`got %q, want n == 8, r.decisions[7] ends with "loxilb's own check: no answer (9 tries)"`, r.decisions)
	}
	r.decisions = nil
	for len(r.checks) == 0 {
		r.tick()
	}
	r.answer(0, "")
	r.want("back 0")
	fail()
	if d := r.d.targets[at(0)].until.Sub(r.now); d != longestBackOff {
		t.Errorf("the endpoint waits for %s after it failed again", d)
	}
	r.take(r.d.ProbeSucceeded(at(0), r.now)) // a successful probe of the service
	r.now = r.now.Add(20 * time.Minute)
	fail()
	if d := r.d.targets[at(0)].until.Sub(r.now); d != firstBackOff {
		t.Errorf("the endpoint waits for %s after a long time in service", d)
	}
}

// TestProbeReadmits checks that a successful probe of the service brings an endpoint back, unless
// the endpoint resets connections.
func TestProbeReadmits(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.serve(1, 10)
	r.serve(2, 10)
	r.serve(0, 4)
	r.rows[0].Count.Reset += 4
	r.rows[3].Count.Opened, r.rows[3].Count.Refused = 3, 3
	r.tick()
	r.answer(3, "connection refused")
	r.decisions = nil
	r.take(r.d.ProbeSucceeded(at(0), r.now))
	r.take(r.d.ProbeSucceeded(at(1), r.now))
	r.want()
	r.take(r.d.ProbeSucceeded(at(3), r.now))
	r.want("back 3")
	// an endpoint that resets connections is tested by a connection that is held for a while
	if r.untilCheck(); r.checks[at(0)].Hold == 0 {
		t.Error("an endpoint that resets connections is checked without holding the connection, which would not show a reset")
	}
}

// TestRows checks that counts of a new row, and cleared counts, are ignored, and that no state
// remains of a deleted service.
func TestRows(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.rows[0].ID, r.rows[0].Count.Opened = 7, 1000
	r.tick()
	r.rows[0].Count = report.Handshakes{}
	r.tick()
	for range 20 {
		r.tick()
	}
	if len(r.checks) > 0 {
		t.Errorf("got %v, want no r.checks", r.checks)
	}
	r.rows[0].Count.Opened += 3
	r.untilCheck()
	r.answer(0, "no answer")
	r.decisions = nil
	r.rows = r.rows[1:]
	r.tick()
	r.tick()
	r.want("back 0")
	r.d.Watch(nil)
	r.take(r.d.Decide(r.now))
	if len(r.d.targets) > 0 || len(r.d.groups) > 0 {
		t.Errorf("%d endpoints and %d services are left", len(r.d.targets), len(r.d.groups))
	}
	r.want()
}

// BenchmarkTick measures the cost of 10,000 endpoints with constant connections.
func BenchmarkTick(b *testing.B) {
	d := New(jiffy)
	var services []Service
	rows := map[lb.Key][]report.HandshakeRow{}
	for i := range 1000 {
		key := web
		key.Port = uint16(i + 1)
		services = append(services, Service{Key: key})
		for j := range 10 {
			rows[key] = append(rows[key], report.HandshakeRow{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j)}), uint16(i)), ID: uint32(10*i + j)})
		}
	}
	d.Watch(services)
	now := time.Now()
	for b.Loop() {
		for _, s := range services {
			list := rows[s.Key]
			for i := range list {
				list[i].Count.Opened++
				list[i].Count.Answered[0]++
			}
			d.Observe(s.Key, list)
		}
		now = now.Add(ReadInterval)
		d.Decide(now)
	}
}

// TestAsymmetricReply checks that an endpoint that accepts our connections, but leaves SYNs of
// clients unanswered for seconds, is reported once, and stays. A SYN that was lost by chance or was
// refused does not count. The report ends with the first answer, or when the endpoint is taken out
// or removed.
func TestAsymmetricReply(t *testing.T) {
	t.Parallel()
	begin := func(syns int, refuse bool) *rig {
		r := newRig(t, 3)
		for n := range 40 {
			if n%10 == 0 && n/10 < syns {
				r.rows[0].Count.Opened++
				if refuse {
					r.rows[0].Count.Refused++
				}
			}
			r.tick()
			if _, checked := r.checks[at(0)]; checked {
				r.answer(0, "")
			}
		}
		return r
	}
	for _, c := range []struct {
		syns      int
		refuse    bool
		decisions []string
	}{{1, false, nil}, {2, false, nil}, {3, false, []string{"asymmetric 0"}}, {4, false, []string{"asymmetric 0"}}, {4, true, nil}} {
		if r := begin(c.syns, c.refuse); !slices.Equal(r.decisions, c.decisions) {
			t.Errorf("%+v: got %v, want %v", c, r.decisions, c.decisions)
		}
	}
	r := begin(4, false)
	r.rows[0].Count.Opened++
	r.rows[0].Count.Answered[0]++
	r.tick()
	if want := []string{"asymmetric 0", "symmetric 0"}; !slices.Equal(r.decisions, want) {
		t.Errorf("after an answer, the decisions are %v", r.decisions)
	}
	r = begin(4, false)
	r.rows = r.rows[1:]
	r.tick()
	if want := []string{"asymmetric 0", "symmetric 0"}; !slices.Equal(r.decisions, want) {
		t.Errorf("after the endpoint was removed, the decisions are %v", r.decisions)
	}
	r = begin(4, false)
	r.rows[0].Count.Opened += 3
	r.untilCheck()
	r.answer(0, "no answer")
	r.tick()
	if len(r.decisions) != 3 || !strings.HasPrefix(r.decisions[1], "out 0 ") || r.decisions[2] != "symmetric 0" {
		t.Errorf("after the endpoint was taken out, the decisions are %v", r.decisions)
	}
}
