package probe

import (
	"math/rand/v2"
	"testing"
	"time"
)

type thing struct {
	QueueItem
	number int
}

func (t *thing) Due() *QueueItem { return &t.QueueItem }

// TestQueue checks that items are returned in the order of their times after any changes and
// removals.
func TestQueue(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	random := rand.New(rand.NewPCG(1, 2))
	var q Queue[*thing]
	if _, ok := q.Next(); ok {
		t.Error("an empty queue has a first thing")
	}
	want := map[*thing]int{}
	for i := range 1000 {
		th := &thing{number: i}
		for range random.IntN(3) + 1 {
			want[th] = random.IntN(100)
			q.Push(th, at(want[th]))
		}
		if random.IntN(4) == 0 {
			q.Remove(th)
			q.Remove(th)
			delete(want, th)
		}
	}
	if q.Len() != len(want) {
		t.Fatalf("%d things, want %d", q.Len(), len(want))
	}
	last := -1
	for now := range 100 {
		for {
			th, ok := q.Pop(at(now))
			if !ok {
				break
			}
			when, there := want[th]
			if !there || when != now || when < last || th.Queued() {
				t.Fatalf("thing %d (wanted at %d: %v) comes at %d, after %d", th.number, when, there, now, last)
			}
			last = when
			delete(want, th)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d things did not come", len(want))
	}
}
