package rates

import (
	"math"
	"time"
)

// ring is the averages of values over the last time steps. Times count from the start of the
// sampler. Completed steps are kept with half the bits of a float32, as there are many rings.
type ring struct {
	step   time.Duration
	width  int
	values []half    // a row for each step, in a ring
	open   []float32 // the row of the newest step, which has not ended
	newest int64
}

func newRing(step time.Duration, steps, width int) *ring {
	return &ring{step: step, width: width, values: make([]half, steps*width), open: make([]float32, width)}
}

// half is the upper half of a float32: its range, and 2 to 3 decimal digits.
type half uint16

func halfOf(v float32) half {
	bits := math.Float32bits(v)
	return half((bits + 0x7fff + bits>>16&1) >> 16) // rounds to nearest, ties to even
}

func (h half) float() float32 { return math.Float32frombits(uint32(h) << 16) }

func (r *ring) steps() int64 { return int64(len(r.values) / r.width) }

func (r *ring) row(step int64) []half {
	at := int(step%r.steps()) * r.width
	return r.values[at : at+r.width]
}

// add records values for the time between from and to.
func (r *ring) add(from, to time.Duration, values ...float32) {
	from = max(from, to-r.step*time.Duration(r.steps()-1))
	for at := from; at < to; {
		step := max(int64(at/r.step), r.newest)
		r.advance(step)
		end := min(to, time.Duration(step+1)*r.step)
		part := float32(end-at) / float32(r.step)
		for i, v := range values {
			r.open[i] += v * part
		}
		at = end
	}
}

// advance closes the newest step, and opens the next one.
func (r *ring) advance(step int64) {
	if step == r.newest {
		return
	}
	for i, v := range r.open {
		r.row(r.newest)[i] = halfOf(v)
	}
	clear(r.open)
	for next := max(r.newest+1, step-r.steps()+1); next <= step; next++ {
		clear(r.row(next))
	}
	r.newest = step
}

// at returns a value of a step; 0 if the step is not kept.
func (r *ring) at(step int64, column int) float32 {
	switch {
	case step == r.newest:
		return r.open[column]
	case step < r.newest && step > r.newest-r.steps():
		return r.row(step)[column].float()
	}
	return 0
}

// Series is values over time: the average of each step, the oldest first.
type Series struct {
	Start  time.Time // of the first step
	Step   time.Duration
	Values [][]float32 // by column, then by step; the last step may have just begun
	// Median and P99 are the times in seconds below which half and 99 % of the handshakes of each
	// step were; 0: the step had none.
	Median, P99 []float32
}

// stepsInRing returns the steps of a length that a ring has at a time.
func stepsInRing(steps int64, step, now time.Duration) (first, last int64) {
	last = int64(max(0, now-1) / step)
	return max(0, last-steps+1), last
}

// columns returns the steps that were kept at a time; began is when the sampler began.
func (r *ring) columns(began time.Time, now time.Duration) Series {
	first, last := stepsInRing(r.steps(), r.step, now)
	out := Series{Start: began.Add(time.Duration(first) * r.step), Step: r.step, Values: make([][]float32, r.width)}
	for column := range out.Values {
		values := make([]float32, last-first+1)
		for i := range values {
			values[i] = r.at(first+int64(i), column)
		}
		if begun := now - time.Duration(last)*r.step; begun > 0 {
			values[len(values)-1] *= float32(r.step) / float32(begun)
		}
		out.Values[column] = values
	}
	return out
}
