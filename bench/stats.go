package main

import "slices"

// spread is what the rounds gave: their median, the least and the most.
type spread struct {
	Median, Min, Max float64
	Rounds           int
}

// spreadOf returns the spread of values, which need no order; the zero spread of none.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = (mid + v[len(v)/2-1]) / 2
	}
	return spread{Median: mid, Min: v[0], Max: v[len(v)-1], Rounds: len(v)}
}

// apart reports whether two spreads differ by more than chance does: each one's median is outside
// of the other, on one side. Asking that the whole spreads do not touch would let a few noisy
// rounds hide any loss.
func (s spread) apart(o spread) bool {
	return s.Median < o.Min && o.Median > s.Max || s.Median > o.Max && o.Median < s.Min
}
