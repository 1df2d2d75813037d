package cluster

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// TestMissedEnds checks that connections which have ended while a node was away end there, and do
// not return from there: neither connections of other nodes, nor its own, which have moved
// to others. An older node, which does not understand ends, still gets everything else.
func TestMissedEnds(t *testing.T) {
	t.Parallel()
	for _, features := range [][]transport.Feature{transport.Features(), {transport.FeatureState, transport.FeaturePacked}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			t.Parallel()
			all := newNodes(t, 3)
			one, two, third := newTable(), newTable(), newTable()
			first, _ := all.start(0, one, nil)
			all.start(2, third, nil)
			leaves, stop := all.start(1, two, nil)
			<-first.Joined()
			<-leaves.Joined()
			one.open(0, 10, false)
			two.open(10, 20, false)
			for _, f := range []*table{one, two, third} {
				eventually(t, "a node does not get all connections", func() bool { return f.len() == 20 })
			}
			stop()
			one.end(5, 15)
			eventually(t, "the third node does not get the ends", func() bool { return third.countOpen() == 10 })
			_, again := all.start(1, two, func(c *Config) { c.features = features })
			defer again()
			if !slices.Contains(features, transport.FeatureEnds) {
				one.open(20, 30, false)
				eventually(t, "the older node gets nothing", func() bool { return two.len() == 30 })
				return
			}
			for i, f := range []*table{one, two, third} {
				eventually(t, fmt.Sprintf("node %d still has connections that have ended", i), func() bool {
					return f.countOpen() == 10 && first.Status().Peers[0].State == report.PeerUp
				})
			}
		})
	}
}

// TestMissedClosing checks that a connection whose both sides have closed ends at a node that was
// away, although nobody has seen the last acknowledgement: elsewhere, it is removed after 120 s.
func TestMissedClosing(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	one, two := newTable(), newTable()
	first, _ := all.start(0, one, nil)
	leaves, stop := all.start(1, two, nil)
	<-first.Joined()
	<-leaves.Joined()
	one.open(0, 10, false)
	eventually(t, "a node does not get all connections", func() bool { return two.len() == 10 })
	stop()
	eventually(t, "a node is still up", func() bool { return first.Status().Peers[0].State == report.PeerDown })
	one.finish(0, 5)
	eventually(t, "the ends are not kept", func() bool {
		kept := 0
		if err := first.ends.each(time.Time{}, func(chunk) error { kept++; return nil }); err != nil {
			t.Error(err)
		}
		return kept > 0
	})
	one.expire(0, 5)
	_, again := all.start(1, two, nil)
	defer again()
	eventually(t, "connections are open that have ended", func() bool { return two.countOpen() == 5 })
}

// TestEndsBounded checks that ends take no more memory than they may, that the latest ones remain,
// and that they are forgotten once no node is away.
func TestEndsBounded(t *testing.T) {
	t.Parallel()
	var e ends
	const batches, batch = 4, 100_000 // of several parts each
	for i := range batches {
		list := make([]report.ConnectionCopy, batch)
		for j := range list {
			list[j] = connection(i*batch + j)
			list[j].Flags |= report.FlagsAcked
		}
		e.add(list)
	}
	count, last := 0, report.ConnectionCopy{}
	for _, part := range framesOf(&e) {
		if len(part.data) > transport.MaxFrame {
			t.Fatalf("a frame of %d bytes", len(part.data))
		}
		list, err := decodeEnds(nil, part.data)
		if err != nil {
			t.Fatal(err)
		}
		if count += len(list); len(list) != part.count || !list[0].Late || !list[0].IsClosed() {
			t.Fatalf("%d ends of %d, the first one %+v", len(list), part.count, list[0])
		}
		last = list[len(list)-1]
	}
	if want := connection(batches*batch - 1).Client; last.Client != want {
		t.Errorf("the last end is of %s, want %s", last.Client, want)
	}
	if e.bytes > maxEnds || count < 200_000 || count >= batches*batch {
		t.Errorf("%d ends in %d bytes, want more in %d", count, e.bytes, maxEnds)
	}
	e.forget(0)
	if len(framesOf(&e)) != 0 || e.bytes != 0 {
		t.Errorf("%d parts and %d bytes remain", len(framesOf(&e)), e.bytes)
	}
}

func framesOf(e *ends) (list []chunk) {
	_ = e.each(time.Time{}, func(part chunk) error {
		list = append(list, part)
		return nil
	})
	return list
}

// TestEndsSince checks that ends since a time are those of frames which began before it, too.
func TestEndsSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e ends
		var since time.Time
		for i := range 3 {
			since = time.Now()
			c := ended(i)
			e.append(&c)
			time.Sleep(endsPartTime * 2 / 3)
		}
		for after, want := range map[time.Time]int{{}: 2, since.Add(-endsPartTime / 3): 2, since.Add(2 * endsPartTime): 0} {
			got := 0
			if err := e.each(after, func(chunk) error { got++; return nil }); err != nil || got != want {
				t.Errorf("since %v, there are %d frames, want %d: %v", after.Sub(since), got, want, err)
			}
		}
	})
}

// TestEndsFirst checks that a node which connects gets the ends that it has missed before all
// connections: the entry of an earlier connection would refuse the next one of its port. Ends
// since then follow. Each end is as old as it is when a slow node gets it.
func TestEndsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = 10 * time.Second
		f := newTable()
		f.open(0, 1, false)
		n := &Node{Config: Config{Table: f}}
		end := func(i int) {
			c := ended(i)
			n.ends.append(&c)
		}
		for i := range 2 {
			end(1 + i)
			time.Sleep(slow)
		}
		var got []string
		err := n.scanAll(t.Context(), &transport.Hello{Features: transport.Features()}, false, func(part chunk) error {
			decode := decodeEnds
			if part.needs == transport.FeaturePacked {
				decode = decodePacked
			}
			list, err := decode(nil, part.data)
			if len(got) < 3 {
				end(3 + len(got))
			}
			for _, c := range list {
				got = append(got, fmt.Sprintf("%v: %v", c.Client.Addr(), c.Idle))
			}
			time.Sleep(slow)
			return err
		})
		want := []string{"10.0.0.1: 20s", "10.0.0.2: 20s", "10.0.0.0: 0s", "10.0.0.3: 30s", "10.0.0.4: 30s", "10.0.0.5: 30s"}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the node gets %q, want %q: %v", got, want, err)
		}
	})
}

// TestEndsBeforeCopies checks that ends are applied before copies that were sent later.
func TestEndsBeforeCopies(t *testing.T) {
	t.Parallel()
	all, f := newNodes(t, 1), newTable()
	all.start(0, f, nil)
	one := connection(0)
	var packed record.Packer
	data := packed.Append(nil, &one)
	const greeting = `{"version":2,"oldest":1,"node":"evil","self":-1,"boot":"x","seed":%q,"slots":509}`
	c := all.connectAsNode(t, fmt.Sprintf(greeting, transport.Fingerprint(0)))
	const kindPacked, kindEnds = 9, 10
	_, _ = c.Write(slices.Concat(frame(kindEnds, append(make([]byte, ageLength), data...)), frame(kindPacked, data)))
	var got []bool
	eventually(t, "the copy is not inserted", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		got = slices.Clone(f.late)
		return f.rows[one.Client].Client.IsValid()
	})
	if want := []bool{true, false}; !slices.Equal(got, want) {
		t.Errorf("an end precedes a copy: %v are late, want %v", got, want)
	}
}

// TestEndsWait checks that ends wait for no service: its connections are not here without it, and
// many ends would take the places of other records.
func TestEndsWait(t *testing.T) {
	t.Parallel()
	f, s, open, end := newTable(), &source{}, connection(0), connection(1)
	f.unknown[open.VIP], end.Late = true, true
	end.Flags |= report.FlagsAcked
	n := &Node{Config: Config{Table: f}, sources: map[string]*source{}}
	if err := n.apply(t.Context(), s, []report.ConnectionCopy{open, end}); err != nil || s.parked != 1 {
		t.Errorf("%d records wait for their service, want the open connection alone: %v", s.parked, err)
	}
}

// TestEndsCounted checks that ends without effect are not counted as records of earlier
// connections.
func TestEndsCounted(t *testing.T) {
	t.Parallel()
	s, absent := &source{}, connection(0)
	absent.Late, absent.Flags = true, absent.Flags|report.FlagsAcked
	n := &Node{Config: Config{Table: newTable()}}
	if err := n.apply(t.Context(), s, []report.ConnectionCopy{absent}); err != nil || s.results != [report.CopyResults]uint64{} || s.received != 1 {
		t.Errorf("the source is %+v: %v", s, err)
	}
}

// TestEndsTogether checks that ends which have occurred one by one are applied many at once, and
// that the other node is answered meanwhile, which would give this one up after 4 s.
func TestEndsTogether(t *testing.T) {
	t.Parallel()
	const count = 3*endsAtOnce + 1
	f := newTable()
	n := &Node{Config: Config{Table: f}}
	for i := range count {
		c := connection(i)
		c.Flags |= report.FlagsAcked
		n.ends.append(&c)
		n.ends.parts[i].began = time.Now().Add(-time.Hour)
	}
	f.open(0, count, false)
	answers, s := 0, &source{}
	if err := n.applyOwnEnds(t.Context(), s, nil, func() error { answers++; return nil }); err != nil {
		t.Fatal(err)
	}
	if f.puts != 4 || answers != 4 || f.countOpen() != 0 || s.parked != 0 {
		t.Errorf("%d calls, %d answers, %d connections are open, %d ends wait", f.puts, answers, f.countOpen(), s.parked)
	}
}

// ended returns a connection that has ended.
func ended(i int) report.ConnectionCopy {
	c := connection(i)
	c.Flags |= report.FlagsAcked
	return c
}

// TestKeepEnds checks that ends are forgotten unless a node is away, and that neither open
// connections are kept, nor ends that another node keeps: nodes would return them for ever.
func TestKeepEnds(t *testing.T) {
	t.Parallel()
	for state, want := range map[report.PeerState]int{report.PeerUp: 1, report.PeerDown: 2} {
		p := &peer{queue: newQueue(), sentTime: time.Now()}
		p.now = report.ClusterPeer{Node: "b", State: state, Since: time.Now().Add(-time.Hour)}
		n := &Node{peers: []*peer{p}, sources: map[string]*source{"b": {complete: true}}}
		n.keepEnds([]report.ConnectionCopy{ended(0)})
		n.ends.parts[0].began = time.Now().Add(-keepEnds - time.Second)
		late := ended(1)
		late.Late = true
		n.keepEnds([]report.ConnectionCopy{ended(2), connection(3), late})
		count := 0
		for _, p := range n.ends.parts {
			count += p.count
		}
		if count != want {
			t.Errorf("%d ends are kept while the other node is %s, want %d", count, state, want)
		}
	}
}

// TestEndsAge checks that each end is as old as it is: an end that seems younger could close a
// later connection, and an older one closes nothing.
func TestEndsAge(t *testing.T) {
	t.Parallel()
	var e ends
	const idle = time.Minute
	ages := []time.Duration{3 * time.Hour, time.Hour}
	for i, age := range ages {
		c := ended(i)
		c.Idle = idle
		e.append(&c)
		e.parts[i].began = time.Now().Add(-age)
	}
	var list []report.ConnectionCopy
	for _, part := range framesOf(&e) {
		var err error
		if list, err = decodeEnds(list, part.data); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range list {
		if c.Idle < ages[i]+idle-time.Second || c.Idle > ages[i]+2*idle {
			t.Errorf("end %d is %v old, want %v", i, c.Idle, ages[i]+idle)
		}
	}
}

// TestEndsFrame checks that a frame has room for its age and the longest record.
func TestEndsFrame(t *testing.T) {
	t.Parallel()
	longest := ended(0)
	address := netip.MustParseAddrPort("[2001:db8::1]:80")
	longest.Client, longest.VIP, longest.Endpoint = address, address, address
	longest.Source, longest.Mark = netip.MustParseAddrPort("[2001:db8::2]:80"), 1
	longest.Numbers = report.TCPNumbers{ReplyAcked: 1 << 31, Acked: 1 << 31}
	for free := range 2 * record.MaxPackedLength {
		e := ends{parts: []endsPart{{began: time.Now(), data: make([]byte, transport.MaxFrame-free)}}}
		e.append(&longest)
		if frame := framesOf(&e)[0].data; len(e.parts) == 1 && len(frame) > transport.MaxFrame {
			t.Fatalf("a frame of %d bytes, want %d at most", len(frame), transport.MaxFrame)
		}
	}
}

// TestEndsConcurrent lets the race detector see that ends are added, sent and forgotten at a time.
func TestEndsConcurrent(t *testing.T) {
	t.Parallel()
	var (
		e   ends
		all sync.WaitGroup
	)
	for i := range 4 {
		all.Go(func() {
			for range 100 {
				e.add([]report.ConnectionCopy{ended(i)})
				framesOf(&e)
				e.forget(0)
			}
		})
	}
	all.Wait()
}

func frame(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(kind)<<24|uint32(len(body))), body...)
}

// TestEndsReceived checks that each end is applied once, also if many of them arrive, and if the
// node sends all its connections again: the end would seem younger than it is.
func TestEndsReceived(t *testing.T) {
	t.Parallel()
	all, f := newNodes(t, 1), newTable()
	node, _ := all.start(0, f, nil)
	ends := func(from, to int) []byte {
		body := make([]byte, ageLength)
		var packed record.Packer
		for i := from; i < to; i++ {
			c := ended(i)
			body = packed.Append(body, &c)
		}
		return frame(10, body)
	}
	open := connection(endsAtOnce + 1)
	bulkEnd := frame(4, nil)
	const greeting = `{"version":2,"oldest":1,"node":"evil","self":-1,"boot":"x","seed":%q,"slots":509}`
	c := all.connectAsNode(t, fmt.Sprintf(greeting, transport.Fingerprint(0)))
	_, _ = c.Write(slices.Concat(ends(0, endsAtOnce), ends(endsAtOnce, endsAtOnce+1), bulkEnd, bulkEnd, frame(3, record.Append(nil, &open))))
	eventually(t, "the last record is not inserted", func() bool { return f.len() == 1 })
	received := func() uint64 {
		node.mu.Lock()
		s := node.sources["evil"]
		node.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.received
	}
	const want = endsAtOnce + 2
	eventually(t, "the records are not counted", func() bool { return received() >= want })
	if got := received(); got != want {
		t.Errorf("%d records were applied, want %d", got, want)
	}
}

// TestEndsBusy checks that ends wait while their connections are being moved, and that records grow
// older while they wait.
func TestEndsBusy(t *testing.T) {
	t.Parallel()
	f, s, late := newTable(), &source{}, ended(1)
	f.open(0, 2, false)
	f.busy, late.Late = true, true
	n := &Node{Config: Config{Table: f}}
	own := ended(0)
	n.ends.append(&own)
	if err := n.applyOwnEnds(t.Context(), s, nil, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := n.apply(t.Context(), s, []report.ConnectionCopy{late, connection(2)}); err != nil || s.parked != 3 {
		t.Errorf("%d records wait, want 3: %v", s.parked, err)
	}
	f.busy = false
	list := n.parked.take()
	const waited = 5 * time.Second
	for i := range list {
		list[i].arrived = time.Now().Add(-waited)
	}
	n.retryCopies(t.Context(), list)
	if open := f.countOpen(); open != 1 || s.parked != 0 {
		t.Errorf("%d connections are open and %d records wait, want 1 and none", open, s.parked)
	}
	if idle := f.rows[connection(2).Client].Idle; idle < waited {
		t.Errorf("the connection is %v old, want %v", idle, waited)
	}
}

// TestEndsAfterWaiting checks that a connection whose end was applied while its copy still waited
// ends once that is inserted.
func TestEndsAfterWaiting(t *testing.T) {
	t.Parallel()
	f, s, own := newTable(), &source{}, ended(0)
	n := &Node{Config: Config{Table: f}}
	n.ends.append(&own)
	f.busy = true
	if err := n.apply(t.Context(), s, []report.ConnectionCopy{connection(0), connection(1), ended(2)}); err != nil {
		t.Fatal(err)
	}
	f.busy = false
	if err := n.applyOwnEnds(t.Context(), s, nil, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		other := ended(10 + i)
		n.ends.append(&other)
	}
	f.late = nil
	n.retryCopies(t.Context(), n.parked.take())
	if want := []bool{false, false, false, true}; !slices.Equal(f.late, want) {
		t.Errorf("other ends are applied again: %v are late, want %v", f.late, want)
	}
	if open := f.countOpen(); open != 1 || f.len() != 3 || s.parked != 0 {
		t.Errorf("%d of %d connections are open, and %d wait, want 1 of 3", open, f.len(), s.parked)
	}
}
