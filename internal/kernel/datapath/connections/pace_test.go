package connections

import (
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/tables"
)

// TestPaceOfDrain checks that the endpoints of one drain share its rate, and that others have one
// each.
func TestPaceOfDrain(t *testing.T) {
	t.Parallel()
	const rate = 10
	d := &Table{ends: map[uint32]*ending{}}
	found := map[uint32][]foundEnd{}
	var all []tables.DueEndpoint
	for id, drain := range []string{"10.1.0.1", "10.1.0.1", "10.1.0.2", "", ""} {
		all = append(all, tables.DueEndpoint{ID: uint32(id), Deadline: bpf.Deadline{Rate: rate, Drain: drain}})
		found[uint32(id)] = make([]foundEnd, 100)
	}
	d.enterDue(all)
	d.enqueue(all, found)
	taken := map[*pace]int{}
	for second := range 3 {
		for _, e := range d.ends {
			e.pace.began = time.Now().Add(-time.Duration(second) * time.Second)
			n := e.allowed()
			e.queue, e.pace.taken = e.queue[n:], e.pace.taken+n
			taken[e.pace] += n
		}
		if len(taken) != 4 {
			t.Fatalf("%d paces, want one for each drain and each endpoint of none", len(taken))
		}
		for _, n := range taken {
			if n != 1+rate*second {
				t.Errorf("%d ended within %d s, want %d", n, second, 1+rate*second)
			}
		}
	}
}
