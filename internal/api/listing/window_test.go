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
