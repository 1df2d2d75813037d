package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// column is one of a work whose result is more than a rate.
type column struct {
	title string
	cell  func(detailed) string // "": nothing is known
}

// detailed finds the spread of a detail of a work's contender; "" is the work's own value.
type detailed func(name string) spread

// number shows a detail as it is, and share as percent.
func number(name string) func(detailed) string {
	return func(d detailed) string { return cellOf(d(name), human) }
}

func nanos(name string) func(detailed) string {
	return func(d detailed) string {
		return cellOf(d(name), func(ns float64) string { return fmt.Sprintf("%.0f ns", ns) })
	}
}

func share(name string) func(detailed) string {
	return func(d detailed) string { return cellOf(d(name), percent) }
}

// percent does not round up to 100 what is less, nor down to 0 what is more.
func percent(v float64) string {
	switch {
	case v > 99.9 && v < 100:
		return "> 99.9 %"
	case v > 0 && v < 0.1:
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", v)
}

// times3 shows the least, the median and the 99th percentile of a time.
func times3(prefix string) func(detailed) string {
	return func(d detailed) string {
		var out []string
		for _, q := range []string{"min", "p50", "p99"} {
			if s := d(prefix + q + "_us"); s.Rounds > 0 {
				out = append(out, micro(s.Median))
			}
		}
		return strings.Join(out, ", ")
	}
}

func cellOf(s spread, show func(float64) string) string {
	if s.Rounds == 0 {
		return ""
	}
	return show(s.Median)
}

// floodColumns returns those of floods. What broke or was lost is shown as the most of all rounds.
func floodColumns(f flood) []column {
	most := func(name string) func(detailed) string {
		return func(d detailed) string {
			s := d(name)
			s.Median = s.Max
			return cellOf(s, human)
		}
	}
	out := []column{
		{"made", share("")},
		{"first ones", share(attemptFirst + "_percent")},
		{"their time (min, p50, p99)", times3(attemptFirst + "_")},
		{"known ones", share(attemptKnown + "_percent")},
		{"their time", times3(attemptKnown + "_")},
		{"held: late", most("held_late")},
		{"broken", most("held_broken")},
		{"table: most", share("table_percent")},
		{"at the end", share("table_end_percent")},
		{"flood, packets/s", number("taken")},
		{"in the program", nanos("program_ns")},
		{"back after", func(d detailed) string { return cellOf(d("back_s"), backText) }},
	}
	if f.large {
		out = append(out, column{"large datagrams", share(attemptLarge + "_percent")})
	}
	return out
}

func backText(seconds float64) string {
	if seconds >= floodLimit.Seconds() {
		return fmt.Sprintf("> %.0f s", seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// rows returns the cells of a work's contenders that have a valid result, the contender first.
func (r *result) rows(w work) (out [][]string) {
	for _, c := range r.contenders(w.name) {
		if r.of(w.name, c).Rounds == 0 {
			continue
		}
		row := []string{c}
		for _, col := range w.columns {
			row = append(row, col.cell(func(name string) spread {
				if name == "" {
					return r.of(w.name, c)
				}
				return r.detail(w.name, c, name)
			}))
		}
		out = append(out, row)
	}
	return out
}

func (w work) head() []string {
	out := []string{"contender"}
	for _, c := range w.columns {
		out = append(out, c.title)
	}
	return out
}

// columnTable is the table of a work with columns, as text.
func columnTable(b *strings.Builder, r *result, w work) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{w.head()}, r.rows(w)...) {
		for i := range row {
			if row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintf(t, "  %s\n", strings.Join(row, "\t"))
	}
	t.Flush()
	for _, c := range r.contenders(w.name) {
		if d := r.dropped(w.name, c); d != "" {
			fmt.Fprintf(b, "  dropped: %s: %s\n", c, d)
		}
		for _, why := range r.invalid(w.name, c) {
			fmt.Fprintf(b, "  not valid: %s: %s\n", c, why)
		}
	}
}

// columnMarkdown is the same for documents.
func columnMarkdown(b *strings.Builder, r *result, w work) {
	head := w.head()
	fmt.Fprintf(b, "\n%s:\n\n| %s |\n|%s\n", w.title, strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range r.rows(w) {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// dropped returns what a contender dropped, by reason, the most first.
func (r *result) dropped(work, contender string) string {
	reasons := map[string]float64{}
	for _, s := range r.Samples {
		if s.Work != work || s.Contender != contender || s.Invalid != "" {
			continue
		}
		for name := range s.Details {
			if reason, ok := strings.CutPrefix(name, dropDetail); ok {
				reasons[reason] = r.detail(work, contender, name).Median
			}
		}
	}
	var out []string
	for _, reason := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		if reasons[a] != reasons[b] {
			return int(reasons[b] - reasons[a])
		}
		return strings.Compare(a, b)
	}) {
		out = append(out, reason+" "+human(reasons[reason]))
	}
	return strings.Join(out, ", ")
}
