package election

import (
	"testing"
	"time"

	"loxilb/internal/lb"
)

// TestMessage checks that claims survive the wire, and that other data is no message.
func TestMessage(t *testing.T) {
	t.Parallel()
	m := Message{Restart: RestartTime, Entries: []Entry{{InstanceHash("a"), Master, 7, true}, {InstanceHash("b"), Declines, 255, false}}}
	data := m.Append(nil)
	got, ok := Parse(data)
	if !ok || got.Restart != m.Restart || len(got.Entries) != 2 || got.Entries[0] != m.Entries[0] || got.Entries[1] != m.Entries[1] {
		t.Errorf("got %+v, want ok, got.Restart == m.Restart, 2 elements in got.Entries, "+
			"got.Entries[0] == m.Entries[0], got.Entries[1] == m.Entries[1]",
			got)
	}
	for i := range data {
		if _, ok := Parse(data[:i]); ok {
			t.Errorf("%d bytes are a message", i)
		}
	}
}

// TestOperateBoth checks that the last of two orders wins, although a packet of the peer, which
// does not know it yet, arrives after it.
func TestOperateBoth(t *testing.T) {
	t.Parallel()
	w := newSimulation(t, low, high)
	w.advance(time.Second)
	for _, i := range []int{1, 0, 1, 0} {
		w.nodes[1-i].SetByOperator(lb.RoleMaster, w.now)
		w.advance(time.Second)
		w.settled(1 - i)
		old := w.nodes[1-i].Claim(w.now)
		w.nodes[i].SetByOperator(lb.RoleMaster, w.now)
		w.nodes[i].Heard(true, true, old, 0, detection, w.now)
		w.advance(time.Second)
		w.settled(i)
	}
}
