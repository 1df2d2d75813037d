package rates

import "time"

// ring is the averages of some values over the last so many steps of time. Times are since the sampler began.
type ring struct {
	step   time.Duration
	values [][]float32 // a row for each step, used in turn
	newest int64       // step that was written last
}

func newRing(step time.Duration, steps, width int) *ring {
	r := &ring{step: step, values: make([][]float32, steps)}
	all := make([]float32, steps*width)
	for i := range r.values {
		r.values[i] = all[i*width : (i+1)*width : (i+1)*width]
	}
	return r
}

func (r *ring) row(step int64) []float32 { return r.values[step%int64(len(r.values))] }

// add has the values have been so from one time to another.
func (r *ring) add(from, to time.Duration, values ...float32) {
	from = max(from, to-r.step*time.Duration(len(r.values)-1))
	for at := from; at < to; {
		step := int64(at / r.step)
		r.advance(step)
		end := min(to, time.Duration(step+1)*r.step)
		part := float32(end-at) / float32(r.step)
		for i, v := range values {
			r.row(step)[i] += v * part
		}
		at = end
	}
}

// advance makes room for a step.
func (r *ring) advance(step int64) {
	for next := max(r.newest+1, step-int64(len(r.values))+1); next <= step; next++ {
		clear(r.row(next))
	}
	r.newest = max(r.newest, step)
}

// Series is values over time: of each step its average, the oldest first.
type Series struct {
	Start  time.Time // of the first step
	Step   time.Duration
	Values [][]float32 // by column, then by step; the last step may have just begun
}

// columns are the steps that were at a time; began is when the sampler began.
func (r *ring) columns(began time.Time, now time.Duration) Series {
	last := int64(max(0, now-1) / r.step)
	first := max(0, last-int64(len(r.values))+1)
	out := Series{Start: began.Add(time.Duration(first) * r.step), Step: r.step, Values: make([][]float32, len(r.values[0]))}
	for column := range out.Values {
		values := make([]float32, last-first+1)
		for i := range values {
			if step := first + int64(i); step <= r.newest && step > r.newest-int64(len(r.values)) {
				values[i] = r.row(step)[column]
			}
		}
		if begun := now - time.Duration(last)*r.step; begun > 0 {
			values[len(values)-1] *= float32(r.step) / float32(begun)
		}
		out.Values[column] = values
	}
	return out
}
