package rows

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// clock is a time that tests advance.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// TestIDs compares random allocations and releases with a plain set: no id is allocated twice, none
// is reused before its quarantine ends, one that had an owner is reported as used, and none is
// lost.
func TestIDs(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	for round := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, round))
		c := &clock{time.Now()}
		const limit = 40
		i := NewIDs(limit, c.now)
		out, freed, dirty := map[uint32]bool{}, map[uint32]time.Time{}, map[uint32]bool{}
		for id := range uint32(limit) {
			switch r.IntN(4) {
			case 0:
				i.Take(id)
				out[id] = true
			case 1:
				i.TakeFreed(id)
				freed[id], dirty[id] = time.Time{}, true
			}
		}
		for range 500 {
			c.at = c.at.Add(time.Duration(r.IntN(300)) * time.Millisecond)
			if r.IntN(2) == 0 {
				for id := range out {
					dirty[id] = r.IntN(2) == 0
					i.Put(id, dirty[id])
					delete(out, id)
					freed[id] = c.at
					break
				}
				continue
			}
			expired := 0
			for _, at := range freed {
				if c.at.Sub(at) >= Quarantine {
					expired++
				}
			}
			id, used, err := i.Get()
			if err != nil {
				if !errors.Is(err, ErrFull) || expired > 0 || len(out)+len(freed) != limit {
					t.Fatalf("seed %d round %d: %v, with %d out, %d freed, %d of them expired", seed, round, err, len(out), len(freed), expired)
				}
				continue
			}
			at := freed[id]
			if out[id] || id >= limit || used != dirty[id] || c.at.Sub(at) < Quarantine || id >= i.top {
				t.Fatalf("seed %d round %d: id %d: out %v, used %v, dirty %v, freed %v ago, top %d", seed, round, id, out[id], used, dirty[id], c.at.Sub(at), i.top)
			}
			out[id] = true
			delete(freed, id)
		}
	}
}

// TestFreeList compares random allocations and releases with a map of the slots: nothing overlaps,
// nothing is lost, neighbours are merged, and a fitting range is found.
func TestFreeList(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	for round := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, round))
		const segments = 3
		taken := [segments][]bool{}
		for k := range taken {
			taken[k] = make([]bool, SlotsPerSegment)
		}
		mark := func(x Range, as bool) {
			for p := x.Offset; p < x.end(); p++ {
				if taken[x.Segment][p] == as {
					t.Fatalf("seed %d round %d: %+v: place %d is %v already", seed, round, x, p, as)
				}
				taken[x.Segment][p] = as
			}
		}
		l := newFreeList()
		var out []Range
		for k := range uint32(segments) { // as at a start
			for at := uint32(r.IntN(1000)); at < 60000; at += uint32(1 + r.IntN(9000)) {
				x := Range{k, at, uint32(1 + r.IntN(5000))}
				out = append(out, x)
				mark(x, true)
				at += x.Count
			}
		}
		adopted := append([]Range(nil), out...)
		r.Shuffle(len(adopted), func(i, j int) { adopted[i], adopted[j] = adopted[j], adopted[i] })
		l.adopt(segments, adopted)
		for range 200 {
			if r.IntN(2) == 0 && len(out) > 0 {
				n := r.IntN(len(out))
				mark(out[n], false)
				l.release(out[n])
				out[n] = out[len(out)-1]
				out = out[:len(out)-1]
			} else {
				count := uint32(1 + r.IntN(1<<r.IntN(16)))
				x, ok := l.allocate(count)
				if ok != (longest(taken[:]) >= int(count)) {
					t.Fatalf("seed %d round %d: %d places: found %v, the longest range is %d", seed, round, count, ok, longest(taken[:]))
				}
				if ok {
					if x.Count != count {
						t.Fatalf("seed %d round %d: asked for %d, got %+v", seed, round, count, x)
					}
					mark(x, true)
					out = append(out, x)
				}
			}
		}
		for _, x := range out {
			l.release(x)
		}
		for k := range uint32(segments) {
			if x, ok := l.allocate(SlotsPerSegment); !ok || x.Offset != 0 || x.Count != SlotsPerSegment {
				t.Fatalf("seed %d round %d: segment %d is not whole again", seed, round, k)
			}
		}
		if len(l.starting)+len(l.ending) > 0 {
			t.Fatalf("seed %d round %d: the free list still has partial ranges: %v", seed, round, l.starting)
		}
	}
}

// longest returns the length of the longest free range.
func longest(taken [][]bool) int {
	best := 0
	for _, segment := range taken {
		n := 0
		for _, used := range segment {
			if n++; used {
				n = 0
			}
			best = max(best, n)
		}
	}
	return best
}

// TestSlotsQuarantine checks that a released range is not reused before its quarantine ends.
func TestSlotsQuarantine(t *testing.T) {
	t.Parallel()
	c := &clock{time.Now()}
	s := NewSlots(NewArray("", nil, &ebpf.MapSpec{}), c.now)
	s.free.release(Range{0, 0, SlotsPerSegment})
	a, err := s.get(40000)
	if err != nil {
		t.Fatal(err)
	}
	s.Put(a)
	if b, _ := s.get(20000); b.Offset < a.end() {
		t.Errorf("%+v overlaps space that was just freed", b)
	}
	c.at = c.at.Add(Quarantine)
	if b, _ := s.get(40000); b != a {
		t.Errorf("got %+v, want %+v", b, a)
	}
}
