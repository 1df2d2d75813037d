package listing

import (
	"slices"
	"strings"
	"testing"
)

// TestWindow checks that a window is the requested part of a list, never beyond its end, and that
// the error for an invalid one names the allowed range.
func TestWindow(t *testing.T) {
	t.Parallel()
	bounded := Bounds{Limit: 2, MaxLimit: 3, MaxOffset: 9}
	for _, tc := range []struct {
		bounds        Bounds
		offset, limit int
		want          []int
		refused       string
	}{
		{Bounds{}, 0, 0, []int{1, 2, 3, 4, 5}, ""},
		{Bounds{}, 1, 2, []int{2, 3}, ""},
		{Bounds{}, 4, 100, []int{5}, ""},
		{Bounds{}, 100, 0, nil, ""},
		{bounded, 0, 0, []int{1, 2}, ""},
		{bounded, 3, 3, []int{4, 5}, ""},
		{bounded, 0, 4, nil, `limit "4" is out of range (allowed: 1 to 3)`},
		{bounded, 10, 1, nil, `offset "10" is out of range (allowed: 0 to 9)`},
		{Bounds{}, -1, 0, nil, `offset "-1" is out of range (allowed: 0 or more)`},
		{Bounds{}, 0, -1, nil, `limit "-1" is out of range (allowed: 0 or more)`},
	} {
		w, err := tc.bounds.Window(tc.offset, tc.limit)
		if tc.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%+v: %v, want %s", tc, err, tc.refused)
			}
			continue
		}
		if got := Cut([]int{1, 2, 3, 4, 5}, w); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%+v: got %v, %v, want no error, %v", tc, got, err, tc.want)
		}
	}
}

// TestSortedPartIsBounded checks that memory holds at most twice the rows up to the end of a
// window, or twice the rows that are sorted.
func TestSortedPartIsBounded(t *testing.T) {
	t.Parallel()
	const sorted = 10_000
	down := func(a, b *int) int { return *b - *a }
	for _, tc := range []struct {
		window Window
		order  func(a, b *int) int
		most   int
		want   []int
	}{
		{Window{1_000_000, 100}, down, 2 * sorted, nil},
		{Window{sorted - 1, 100}, down, 2 * sorted, []int{90_000}},
		{Window{100, 3}, down, 206, []int{99_899, 99_898, 99_897}},
		{Window{100, 3}, nil, 3, []int{100, 101, 102}},
	} {
		p := SortedPart[int]{Window: tc.window, Order: tc.order, Max: sorted}
		most := 0
		for i := range 100_000 {
			p.Add(&i)
			most = max(most, len(p.rows))
		}
		if got := p.Rows(); most > tc.most || p.Total != 100_000 || !slices.Equal(got, tc.want) {
			t.Errorf("%+v: got %v of %d, with %d rows in memory; want %v, with %d rows", tc.window, got, p.Total, most, tc.want, tc.most)
		}
	}
}
