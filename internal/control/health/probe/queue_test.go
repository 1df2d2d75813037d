package probe

import (
	"math/rand/v2"
	"testing"
	"time"
)

type queued struct {
	QueueItem
	number int
}

func (q *queued) Due() *QueueItem { return &q.QueueItem }

// TestQueue checks that values are returned in the order of their times after any changes and
// removals.
func TestQueue(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	random := rand.New(rand.NewPCG(1, 2))
	var q Queue[*queued]
	if _, ok := q.Next(); ok {
		t.Error("an empty queue has a first value")
	}
	want := map[*queued]int{} // the time of each value, in seconds after start
	for i := range 1000 {
		v := &queued{number: i}
		for range random.IntN(3) + 1 {
			want[v] = random.IntN(100)
			q.Push(v, at(want[v]))
		}
		if random.IntN(4) == 0 {
			q.Remove(v)
			q.Remove(v)
			delete(want, v)
		}
	}
	if q.Len() != len(want) {
		t.Fatalf("%d values, want %d", q.Len(), len(want))
	}
	last := -1
	for now := range 100 {
		for {
			v, ok := q.Pop(at(now))
			if !ok {
				break
			}
			when, queued := want[v]
			if !queued || when != now || when < last || v.Queued() {
				t.Fatalf("Pop returns value %d (expected at %d: %v) at %d, after one of %d", v.number, when, queued, now, last)
			}
			last = when
			delete(want, v)
		}
	}
	if len(want) != 0 {
		t.Errorf("Pop has not returned %d values", len(want))
	}
}
