package rates

import (
	"time"

	"loxilb/internal/lb/report"
)

// times counts handshakes by duration, in the data path's buckets.
type times [report.HandshakeBuckets]uint32

func timesOf(h *report.Handshakes) (t times) {
	for i, n := range h.Answered {
		t[i] = uint32(n) // modulo 2^32, which does not affect differences
	}
	return t
}

func (t *times) add(o *times) {
	for i, n := range o {
		t[i] += n
	}
}

// since returns the increase since an earlier reading.
func (t *times) since(earlier *times) (added times) {
	for i := range t {
		added[i] = t[i] - earlier[i]
	}
	return added
}

// latest counts the durations of the latest handshakes, at most maxLatest, however long ago they
// were.
type latest [report.HandshakeBuckets]uint16

const maxLatest = 1024

// add adds handshakes. Beyond the maximum, all of them lose half of their weight.
func (l *latest) add(more *times) {
	var all times
	for i := range all {
		all[i] = uint32(l[i]) + more[i]
	}
	for all.count() > maxLatest {
		for i := range all {
			all[i] /= 2
		}
	}
	for i, n := range all {
		l[i] = uint16(n)
	}
}

// Times summarizes the durations of handshakes.
type Times struct {
	Count       int           // number of handshakes; 0: the other fields are unknown
	Median, P99 time.Duration // upper bounds for half of the handshakes, and for 99 %
}

func (l *latest) times(jiffy time.Duration) Times {
	var all times
	for i, n := range l {
		all[i] = uint32(n)
	}
	return all.summary(jiffy)
}

func (t *times) summary(jiffy time.Duration) Times {
	count := t.count()
	if count == 0 {
		return Times{}
	}
	return Times{Count: int(count), Median: report.HandshakeBound(t.bucket(0.5), jiffy), P99: report.HandshakeBound(t.bucket(0.99), jiffy)}
}

func (t *times) count() (sum uint64) {
	for _, n := range t {
		sum += uint64(n)
	}
	return sum
}

// bucket returns the bucket of a quantile, or -1 without handshakes.
func (t *times) bucket(share float64) int {
	all, below := t.count(), uint64(0)
	for i, n := range t {
		if below += uint64(n); all > 0 && float64(below) >= share*float64(all) {
			return i
		}
	}
	return -1
}

// timeline keeps the durations of handshakes in the last steps of time: their median and 99th
// percentile, as a bucket each.
type timeline struct {
	step    time.Duration
	buckets [][2]int8 // of each step, in a ring; -1: no handshake
	open    times     // of the newest step, which has not ended
	newest  int64
}

func newTimeline(step time.Duration, steps int) *timeline {
	t := &timeline{step: step, buckets: make([][2]int8, steps)}
	for i := range t.buckets {
		t.buckets[i] = [2]int8{-1, -1}
	}
	return t
}

func (t *timeline) steps() int64 { return int64(len(t.buckets)) }

// add counts handshakes that were read at a time.
func (t *timeline) add(at time.Duration, added *times) {
	step := max(int64(max(0, at-1)/t.step), t.newest)
	if step > t.newest {
		t.buckets[t.newest%t.steps()] = t.open.quantiles()
		t.open = times{}
		for next := max(t.newest+1, step-t.steps()+1); next <= step; next++ {
			t.buckets[next%t.steps()] = [2]int8{-1, -1}
		}
		t.newest = step
	}
	t.open.add(added)
}

func (t *times) quantiles() [2]int8 { return [2]int8{int8(t.bucket(0.5)), int8(t.bucket(0.99))} }

// at returns the buckets of a step.
func (t *timeline) at(step int64) [2]int8 {
	switch {
	case step == t.newest:
		return t.open.quantiles()
	case step < t.newest && step > t.newest-t.steps():
		return t.buckets[step%t.steps()]
	}
	return [2]int8{-1, -1}
}

// fill adds the steps that are kept at a time to a series.
func (t *timeline) fill(s *Series, now, jiffy time.Duration) {
	first, last := stepsInRing(t.steps(), t.step, now)
	seconds := func(bucket int8) float32 {
		if bucket < 0 {
			return 0
		}
		return float32(report.HandshakeBound(int(bucket), jiffy).Seconds())
	}
	for step := first; step <= last; step++ {
		at := t.at(step)
		s.Median, s.P99 = append(s.Median, seconds(at[0])), append(s.P99, seconds(at[1]))
	}
}
