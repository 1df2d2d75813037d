package tables

import "testing"

// TestShareOfWeight checks an endpoint's share of its weight by its rows, in tenths or full.
func TestShareOfWeight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows   []endpoint
		tenths bool
		want   float64
	}{
		"all":                     {[]endpoint{{weight: 7, currentWeight: 7}}, false, 1},
		"all of tenths":           {[]endpoint{{weight: 7, currentWeight: 70}}, true, 1},
		"it comes":                {[]endpoint{{weight: 7, currentWeight: 21}}, true, 0.3},
		"none":                    {[]endpoint{{weight: 7}}, true, 0},
		"a service":               {[]endpoint{{weight: 6, currentWeight: 6}, {weight: 2}}, false, 0.75},
		"it was not applied yet":  {[]endpoint{{currentWeight: 30}}, false, 1},
		"a weight of 0, of a row": {[]endpoint{{}}, false, 0},
	} {
		var s weightShare
		for i := range c.rows {
			s.add(&c.rows[i], "")
		}
		if got := s.fraction(c.tenths); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
