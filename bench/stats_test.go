package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3, 1}},
		{[]float64{5, 1, 3}, spread{3, 1, 5, 3}},
		{[]float64{4, 1, 2, 9}, spread{3, 1, 9, 4}},
	} {
		if got := spreadOf(c.in); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
	}
}

func TestApart(t *testing.T) {
	for _, c := range []struct {
		what string
		a, b spread
		want bool
	}{
		{"nothing in common", spread{1, 0.9, 1.1, 5}, spread{2, 1.9, 2.1, 5}, true},
		{"only their ends meet", spread{1, 0.9, 1.6, 5}, spread{2, 1.5, 2.1, 5}, true},
		{"a median within the other", spread{1, 0.9, 2.05, 5}, spread{2, 1.5, 2.1, 5}, false},
		{"the same", spread{1, 0.9, 1.1, 5}, spread{1, 0.9, 1.1, 5}, false},
	} {
		if got := c.a.isDistinct(c.b); got != c.want || c.b.isDistinct(c.a) != c.want {
			t.Errorf("%s: got %v, want %v in both directions", c.what, got, c.want)
		}
	}
}

func TestNumberText(t *testing.T) {
	got := map[float64]string{}
	want := map[float64]string{0: "0", 0.123456: "0.123", 12.34: "12.3", 999: "999", 999.4: "999", 999.5: "1,000", 999.9: "1,000", 1000: "1,000", 1234567.8: "1,234,568", -2500: "-2,500"}
	for v := range want {
		got[v] = numberText(v)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the result differs (-want +got):\n%s", d)
	}
}
