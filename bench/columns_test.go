package main

import (
	"strings"
	"testing"
)

// exampleFlood returns a result of two rounds of a flood, in which one contender has no table and
// another one fails once.
func exampleFlood() *result {
	r := example(1)
	r.Name, r.Samples = "flood", nil
	r.Setting.Works, r.Setting.Contenders = []string{"flood-syn"}, []string{baseline, "loxilb-one", "nft-one"}
	for round := 1; round <= 2; round++ {
		add := func(contender string, value float64, invalid string, details map[string]float64) {
			r.Samples = append(r.Samples, sample{
				Round: round, Work: "flood-syn", Contender: contender, Value: value, Invalid: invalid, Details: details,
			})
		}
		add(baseline, 100, "", map[string]float64{
			"taken": 215_000, "held_late": 0, "held_broken": 0, "back_s": 0,
			"first_percent": 100, "first_min_us": 300, "first_p50_us": 900, "first_p99_us": 2500,
			"known_percent": 100, "known_min_us": 200, "known_p50_us": 500, "known_p99_us": 1500,
		})
		add("loxilb-one", 73.7, "", map[string]float64{
			"taken": 150_000, "held_late": float64(round), "held_broken": 0, "back_s": 40, "table_percent": 99.99, "table_end_percent": 99,
			"first_percent": 60, "first_min_us": 500, "first_p50_us": 1_001_000, "first_p99_us": 1_400_000, "known_percent": 87.4,
			"drop_conntrack-full": 200_000, "drop_no-connection": 3,
		})
		add("nft-one", 0, map[int]string{1: "the clients ended"}[round], map[string]float64{"first_percent": 0, "known_percent": 0, "back_s": 1.5})
	}
	return r
}

func TestFloodText(t *testing.T) {
	var b strings.Builder
	if err := writeText(&b, exampleFlood()); err != nil {
		t.Fatal(err)
	}
	golden(t, "flood.txt", b.String())
}

func TestFloodMarkdown(t *testing.T) {
	golden(t, "flood.golden", markdown(exampleFlood()))
}

// TestDroppedOrder checks that reasons are sorted by medians that differ by less than one.
func TestDroppedOrder(t *testing.T) {
	r := &result{Samples: []sample{{Work: "rps", Contender: "nft", Details: map[string]float64{
		dropDetail + "a": 2.1, dropDetail + "b": 2.6, dropDetail + "c": 2.5, dropDetail + "d": 2.5, dropDetail + "e": 2.2, dropDetail + "f": 2.4,
	}}}}
	if got, want := r.dropped("rps", "nft"), "b 2.6, c 2.5, d 2.5, f 2.4, e 2.2, a 2.1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFloodsByName checks that floods run only when they are named, and have a result of their
// own.
func TestFloodsByName(t *testing.T) {
	all, err := workloadsNamed(setting{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		if w.group == "flood" {
			t.Errorf("%s is measured by default", w.name)
		}
	}
	named, err := workloadsNamed(setting{Works: []string{"flood"}})
	if want := 2*len(floods()) + 1; err != nil || len(named) != want {
		t.Errorf("flood is %d workloads, want %d: %v", len(named), want, err)
	}
	for _, w := range named {
		if _, err := contendersNamed(nil); err != nil || len(w.defaults) == 0 || len(w.columns) == 0 {
			t.Errorf("%s: got %v, want no error, elements in w.defaults, elements in w.columns", w.name, err)
		}
	}
	for want, workloads := range map[string][]string{"flood": {"flood-syn", "flood-honest"}, "flood-honest": {"flood-honest"}, "net-one-1500": {"rps", "flood-syn"}} {
		if got := resultName(setting{Layout: "one", MTU: 1500, Works: workloads}); got != want {
			t.Errorf("%v is called %s, not %s", workloads, got, want)
		}
	}
}
