package election

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/test/race"
)

const (
	interval  = 100 * time.Millisecond
	detection = 3 * interval
	step      = 10 * time.Millisecond
)

// simulation runs two nodes by a simulated clock. Packets arrive within a step.
type simulation struct {
	t           *testing.T
	now         time.Time
	nodes       [2]*node
	cut         [2]bool       // packets of a node are lost
	grace       time.Time     // no overlap counts before
	bothSince   time.Duration // since when both own the VIPs
	longestBoth time.Duration // the longest that both owned them while they could hear each other
	log         []string
}

// node is a node with a simplified BFD session.
type node struct {
	*Machine
	rank    Rank
	up      bool // the process runs
	stopped bool // by SIGSTOP
	// unplugged means that the node sees that its link is down.
	unplugged bool
	state     int // 1 Down, 2 Init, 3 Up
	deadline  time.Time
	send      time.Time
	sent      time.Time
	lease     Lease // as the kernel and the next process have it
	stored    lb.Role
	restart   time.Duration
	inbox     []packet
}

type packet struct {
	state   int
	entry   Entry
	restart time.Duration
}

func newSimulation(t *testing.T, ranks ...Rank) *simulation {
	w := &simulation{t: t, now: time.Unix(1e9, 0)}
	for i := range w.nodes {
		w.nodes[i] = &node{rank: ranks[i], stored: lb.RoleUnknown}
		w.start(i)
	}
	return w
}

func (w *simulation) start(i int) {
	n := w.nodes[i]
	n.Machine = NewMachine(n.rank, n.stored, n.lease, w.now)
	n.keepLease()
	n.up, n.stopped, n.state, n.deadline, n.send, n.restart, n.inbox = true, false, 1, time.Time{}, w.now, 0, nil
	w.note(i, "starts as %s", n.role)
}

func (w *simulation) note(i int, format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%8s %d ", w.now.Sub(time.Unix(1e9, 0)), i)+fmt.Sprintf(format, args...))
}

// owns reports whether the node, or its kernel, answers for the VIPs.
func (w *simulation) owns(i int) bool {
	n := w.nodes[i]
	return n.stored.Owns() && w.now.Before(n.lease.Until)
}

// orphaned reports whether a process died, or stopped, while it did not see its peer: its kernel
// answers for StartWait at most.
func (w *simulation) orphaned(i int) bool {
	n := w.nodes[i]
	return (!n.up || n.stopped) && n.lease.Alone
}

// keepLease passes the lease on, as the manager does: a node that yields stops answering.
func (n *node) keepLease() { n.lease = n.Lease() }

func (w *simulation) packetTo(i int, p packet) {
	if !w.cut[1-i] && w.nodes[i].up {
		w.nodes[i].inbox = append(w.nodes[i].inbox, p)
	}
}

func (w *simulation) transmit(i int) {
	n := w.nodes[i]
	n.checkLease(w.now)
	n.sent = w.now
	w.packetTo(1-i, packet{n.state, n.Claim(w.now), n.restart})
	if n.state == 3 {
		n.Sent(w.now.Add(detection))
		n.keepLease()
		n.send = w.now.Add(interval)
		return
	}
	n.send = w.now.Add(time.Second)
}

// advance runs both nodes for a while.
func (w *simulation) advance(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(step) {
		for i, n := range w.nodes {
			if n.up && !n.stopped {
				w.run(i)
			}
		}
		switch {
		case w.cut[0] || w.cut[1]: // afterwards, sessions send every second until they are up (RFC 5880, 6.8.3)
			w.grace, w.bothSince = w.now.Add(time.Second), 0
		case w.now.Before(w.grace) || !w.owns(0) || !w.owns(1) || w.orphaned(0) || w.orphaned(1):
			w.bothSince = 0
		default:
			w.bothSince += step
			w.longestBoth = max(w.longestBoth, w.bothSince)
		}
	}
}

func (w *simulation) run(i int) {
	n := w.nodes[i]
	for range 3 { // answers are immediate
		before, state, role := n.Claim(w.now), n.state, n.role
		inbox := n.inbox
		n.inbox = nil
		if n.state == 3 && !w.now.Before(n.sent.Add(detection)) { // as the session does
			n.state, n.deadline, inbox = 1, time.Time{}, nil
			n.Lost(n.unplugged, w.now)
		}
		for _, p := range inbox {
			switch {
			case p.state == 1 && n.state != 2:
				n.state = map[int]int{1: 2, 3: 1}[n.state]
			case p.state == 2 && n.state < 3, p.state == 3 && n.state == 2:
				n.state = 3
			}
			n.deadline = w.now.Add(detection)
			if p.state < 3 {
				n.deadline = w.now.Add(3 * time.Second) // it sends slowly
			}
			n.Heard(n.state == 3, true, p.entry, p.restart, detection, w.now)
		}
		if !n.deadline.IsZero() && !w.now.Before(n.deadline) {
			n.state, n.deadline = 1, time.Time{}
			n.Lost(n.unplugged, w.now)
		}
		n.Tick(w.now)
		if n.role != role {
			w.note(i, "%s: %s", n.role, n.reason)
		}
		n.keepLease()
		n.stored = n.role
		if n.state != state || n.Claim(w.now) != before || !w.now.Before(n.send) {
			w.transmit(i)
		}
	}
}

// settled checks that exactly one node owns the VIPs.
func (w *simulation) settled(want int) {
	w.t.Helper()
	for i := range w.nodes {
		if w.owns(i) != (i == want) {
			w.t.Errorf("node %d owns: %t, want %t", i, w.owns(i), i == want)
		}
	}
	if w.longestBoth > detection {
		w.t.Errorf("both owned the VIPs for %s", w.longestBoth)
	}
	if w.t.Failed() {
		for _, line := range w.log {
			w.t.Log(line)
		}
		w.t.FailNow()
	}
}

func (w *simulation) kill(i int) { w.nodes[i].up = false; w.note(i, "is killed") }

var (
	low  = Rank{Priority: 100}
	high = Rank{Priority: 100, Higher: true}
)

// TestStartTogether checks that of two nodes that start together the higher one is MASTER, and that
// neither is before they have heard each other.
func TestStartTogether(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, low, high)
	w.advance(5 * time.Second)
	w.settled(1)
	for i := range w.nodes { // both again, within the same boot
		w.kill(i)
	}
	w.advance(time.Second)
	w.start(0)
	w.start(1)
	w.advance(5 * time.Second)
	w.settled(1)
}

// TestTakeover checks that the survivor takes over within the detection time, and keeps its role
// when the other node returns, unless that preempts.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, preempt := range []bool{false, true} {
		first := high
		first.Preempt = preempt
		w := newSimulation(t, first, low)
		w.advance(time.Second)
		w.settled(0)
		w.kill(0)
		w.advance(detection + 2*step)
		w.settled(1)
		w.advance(5 * time.Second)
		w.start(0)
		w.advance(5 * time.Second)
		if preempt {
			w.settled(0)
		} else {
			w.settled(1)
		}
		if w.longestBoth > 0 {
			t.Errorf("both owned the VIPs for %s", w.longestBoth)
		}
	}
}

// TestStopped checks that a process that was stopped is not MASTER when it continues.
func TestStopped(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, high, low)
	w.advance(time.Second)
	w.nodes[0].stopped = true
	w.advance(detection + 2*step)
	w.settled(1)
	w.advance(10 * time.Second)
	w.nodes[0].stopped = false
	w.advance(5 * time.Second)
	w.settled(1)
}

// TestPartition checks that both nodes own the VIPs during a partition, and one soon after it.
func TestPartition(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, low, high)
	w.advance(time.Second)
	w.cut = [2]bool{true, true}
	w.advance(time.Second)
	if !w.owns(0) || !w.owns(1) {
		t.Error("a node gave up its VIPs, and no other node took over")
	}
	w.cut = [2]bool{}
	w.advance(2 * time.Second)
	w.settled(1)
}

// TestUnplugged checks that a node whose own link was down does not take over from the peer that
// served meanwhile, whatever their ranks. If both links were down, one of them yields.
func TestUnplugged(t *testing.T) {
	t.Parallel()
	const either = -1
	for _, c := range []struct {
		ranks     [2]Rank
		unplugged [2]bool
		want      int
	}{
		{[2]Rank{high, low}, [2]bool{true, false}, 1}, // the MASTER lost its link
		{[2]Rank{low, high}, [2]bool{false, true}, 0},
		{[2]Rank{high, low}, [2]bool{false, true}, 0},     // the BACKUP did
		{[2]Rank{high, low}, [2]bool{true, true}, either}, // a cable between both
		{[2]Rank{low, high}, [2]bool{true, true}, either},
	} {
		w := newSimulation(t, c.ranks[0], c.ranks[1])
		w.advance(time.Second)
		w.cut = [2]bool{true, true}
		for i, n := range w.nodes {
			n.unplugged = c.unplugged[i]
		}
		w.advance(time.Second)
		if !w.owns(0) || !w.owns(1) {
			t.Error("a node gave up its VIPs, and no other node took over")
		}
		w.cut = [2]bool{}
		w.advance(2 * time.Second)
		if c.want == either {
			c.want = 0
			if w.owns(1) {
				c.want = 1
			}
		}
		w.settled(c.want)
	}
}

// TestLateNetwork checks that a node whose network works only after its start, such as behind a
// switch that learns its topology first, does not take over from a MASTER.
func TestLateNetwork(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, low, high)
	w.advance(5 * time.Second)
	w.kill(1)
	w.advance(time.Second)
	w.settled(0)
	w.cut = [2]bool{true, true}
	w.start(1)
	w.advance(10 * time.Second)
	w.cut = [2]bool{}
	w.advance(3 * time.Second)
	w.settled(0)
}

// TestOneWay checks that a MASTER whose packets are lost yields to the peer that took over.
func TestOneWay(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, high, low)
	w.advance(time.Second)
	w.cut[0] = true
	w.advance(3 * time.Second)
	if w.owns(0) || !w.owns(1) {
		t.Errorf("got %t, %t, want not w.owns(0), w.owns(1)", w.owns(0), w.owns(1))
	}
	w.cut[0] = false
	w.advance(3 * time.Second)
	w.settled(1)
}

// TestOperate checks that an operator's role holds until the next transition.
func TestOperate(t *testing.T) {
	t.Parallel()
	preempting := high
	preempting.Preempt = true
	w := newSimulation(t, preempting, low)
	w.advance(time.Second)
	w.nodes[1].SetByOperator(lb.RoleMaster, w.now)
	w.advance(time.Second)
	w.settled(1)
	w.nodes[0].SetByOperator(lb.RoleMaster, w.now)
	w.advance(time.Second)
	w.settled(0)
	w.nodes[0].SetByOperator(lb.RoleBackup, w.now)
	w.advance(time.Second)
	w.settled(1)
	w.nodes[0].SetByOperator(lb.RoleUnknown, w.now)
	w.advance(time.Second)
	w.settled(0)
	w.nodes[0].SetByOperator(lb.RoleStop, w.now)
	w.advance(time.Second)
	w.settled(1)
	w.kill(1)
	w.advance(time.Second)
	if w.owns(0) || w.owns(1) {
		t.Error("a node in state STOP took over")
	}
	w.nodes[0].SetByOperator(lb.RoleBackup, w.now)
	w.advance(time.Second)
	if w.owns(0) {
		t.Error("the operator's BACKUP did not hold")
	}
	w.nodes[1].stored = lb.RoleBackup
	w.start(1)
	w.advance(5 * time.Second)
	w.settled(1)
	w.kill(1) // the next transition
	w.advance(time.Second)
	w.settled(0)
}

// TestMaintenance checks that a node in maintenance hands over, and does not take over before it is
// resumed.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, high, low)
	w.advance(time.Second)
	w.nodes[0].Decline("maintenance", w.now)
	w.advance(100 * time.Millisecond)
	w.settled(1)
	w.nodes[0].Decline("", w.now)
	w.advance(time.Second)
	w.settled(1)
	w.kill(1)
	w.advance(time.Second)
	w.settled(0)
}

// TestRestart checks that the peer waits for a node that announced its restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, low, high)
	w.advance(time.Second)
	n := w.nodes[1]
	n.restart = RestartTime
	restarted := w.now
	w.transmit(1)
	w.advance(50 * time.Millisecond)
	if !n.Granted() {
		t.Fatal("the peer does not wait")
	}
	w.kill(1)
	n.lease = Lease{Until: restarted.Add(RestartTime)}
	w.advance(4 * time.Second)
	w.settled(1) // by its kernel
	w.start(1)
	w.advance(2 * time.Second)
	w.settled(1)
	if role, _ := w.nodes[0].Role(); role != lb.RoleBackup || len(w.log) != 5 {
		t.Errorf("roles changed: %q", w.log)
	}
	n.restart = RestartTime
	restarted = w.now
	w.transmit(1)
	w.advance(50 * time.Millisecond)
	w.kill(1)
	n.lease = Lease{Until: restarted.Add(RestartTime)}
	w.advance(RestartTime)
	w.settled(0)
	w.start(1)
	w.advance(5 * time.Second)
	w.settled(0)
}

// TestRandom checks that after any sequence of failures exactly one node owns the VIPs, and that
// both never own them for longer than the detection time while they can hear each other.
func TestRandom(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, b := low, high
		a.Preempt, b.Preempt = r.IntN(2) == 0, r.IntN(2) == 0
		a.Priority = uint8(99 + r.IntN(3))
		w := newSimulation(t, a, b)
		for range 20 {
			i := r.IntN(2)
			switch n := w.nodes[i]; r.IntN(5) {
			case 0:
				if n.up {
					w.kill(i)
				} else {
					w.start(i)
				}
			case 1:
				n.stopped = !n.stopped
				w.note(i, "stopped: %t", n.stopped)
			case 2:
				w.cut[0] = !w.cut[0]
				w.cut[1] = w.cut[0]
				for _, n := range w.nodes {
					n.unplugged = w.cut[0] && r.IntN(2) == 0
				}
				w.note(i, "cut: %t, unplugged: %t %t", w.cut[0], w.nodes[0].unplugged, w.nodes[1].unplugged)
			}
			w.advance(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
		w.cut, w.grace, w.bothSince = [2]bool{}, w.now.Add(time.Second), 0
		w.nodes[0].unplugged, w.nodes[1].unplugged = false, false
		for i, n := range w.nodes {
			n.stopped = false
			if !n.up {
				w.start(i)
			}
		}
		w.advance(10 * time.Second)
		want := 0
		if w.owns(1) {
			want = 1
		}
		w.log = append(w.log, fmt.Sprint("seed ", seed))
		w.settled(want)
	}
}
