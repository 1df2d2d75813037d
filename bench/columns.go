package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// column is a column in the table of a workload with more results than a rate.
type column struct {
	title string
	cell  func(detailFinder) string // "": nothing is known
}

// detailFinder finds the spread of a detail of a workload's contender; "" is the workload's own
// value.
type detailFinder func(name string) spread

// number shows a detail unchanged, nanos as nanoseconds, and share as percent.
func number(name string) func(detailFinder) string {
	return func(d detailFinder) string { return cellOf(d(name), numberText) }
}

func nanos(name string) func(detailFinder) string {
	return func(d detailFinder) string {
		return cellOf(d(name), func(ns float64) string { return fmt.Sprintf("%.0f ns", ns) })
	}
}

func share(name string) func(detailFinder) string {
	return func(d detailFinder) string { return cellOf(d(name), percent) }
}

// percent rounds neither up to 100 nor down to 0.
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
func times3(prefix string) func(detailFinder) string {
	return func(d detailFinder) string {
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

// floodColumns returns the columns of floods. Late exchanges and broken connections are the maximum
// of all rounds.
func floodColumns(f flood) []column {
	most := func(name string) func(detailFinder) string {
		return func(d detailFinder) string {
			s := d(name)
			s.Median = s.Max
			return cellOf(s, numberText)
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
		{"back after", func(d detailFinder) string { return cellOf(d("back_s"), recoveryText) }},
	}
	if f.large {
		out = append(out, column{"large datagrams", share(attemptLarge + "_percent")})
	}
	return out
}

func recoveryText(seconds float64) string {
	if seconds >= floodLimit.Seconds() {
		return fmt.Sprintf("> %.0f s", seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// rows returns the cells of a workload's contenders that have a valid result, the contender first.
func (r *result) rows(w workload) (out [][]string) {
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

func (w workload) headings() []string {
	out := []string{"contender"}
	for _, c := range w.columns {
		out = append(out, c.title)
	}
	return out
}

// columnTable is the table of a workload with columns, as text.
func columnTable(b *strings.Builder, r *result, w workload) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{w.headings()}, r.rows(w)...) {
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

// columnMarkdown writes workloads with columns as Markdown. Workloads share a table if their
// columns are the same, apart from additional columns at the end. Empty columns are omitted.
func columnMarkdown(b *strings.Builder, r *result, workloads []workload) {
	for len(workloads) > 0 {
		head := workloads[0].headings()
		n := 1
		for ; n < len(workloads); n++ {
			next := workloads[n].headings()
			if shorter := min(len(next), len(head)); !slices.Equal(next[:shorter], head[:shorter]) {
				break
			}
			if len(next) > len(head) {
				head = next
			}
		}
		table := [][]string{append([]string{""}, head...)}
		_, common, _ := strings.Cut(workloads[0].title, ": ")
		if slices.ContainsFunc(workloads[:n], func(w workload) bool { return !strings.HasSuffix(w.title, ": "+common) }) {
			common = ""
		}
		if common != "" {
			fmt.Fprintf(b, "%s:\n\n", strings.ToUpper(common[:1])+common[1:])
		}
		for _, w := range workloads[:n] {
			title := strings.TrimSuffix(w.title, ": "+common)
			for _, row := range r.rows(w) {
				row = append([]string{title}, row...)
				table = append(table, append(row, make([]string, len(table[0])-len(row))...))
				title = ""
			}
		}
		markdownTable(b, withoutEmptyColumns(table))
		workloads = workloads[n:]
	}
}

// withoutEmptyColumns returns a table without the columns that only its head fills.
func withoutEmptyColumns(table [][]string) [][]string {
	out := make([][]string, len(table))
	for column := range table[0] {
		if !slices.ContainsFunc(table[1:], func(row []string) bool { return row[column] != "" }) {
			continue
		}
		for i, row := range table {
			out[i] = append(out[i], row[column])
		}
	}
	return out
}

func markdownTable(b *strings.Builder, table [][]string) {
	for i, row := range table {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
}

// dropped returns a contender's drops by reason, the most frequent first.
func (r *result) dropped(workload, contender string) string {
	reasons := map[string]float64{}
	for _, s := range r.Samples {
		if s.Work != workload || s.Contender != contender || s.Invalid != "" {
			continue
		}
		for name := range s.Details {
			if reason, ok := strings.CutPrefix(name, dropDetail); ok {
				reasons[reason] = r.detail(workload, contender, name).Median
			}
		}
	}
	var out []string
	for _, reason := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		if reasons[a] != reasons[b] {
			return cmp.Compare(reasons[b], reasons[a])
		}
		return strings.Compare(a, b)
	}) {
		out = append(out, reason+" "+numberText(reasons[reason]))
	}
	return strings.Join(out, ", ")
}

// writeText writes a result for people.
func writeText(out io.Writer, r *result) error {
	var b strings.Builder
	writeHeader(&b, r)
	for _, w := range r.workloads() {
		b.WriteString("\n")
		writeTable(&b, r, w)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func writeHeader(b *strings.Builder, r *result) {
	m, s := r.Machine, r.Setting
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	kind := ""
	if m.Virtual {
		kind = "virtual machine, "
	}
	line("machine", fmt.Sprintf("%s%d CPUs, %s, %s; load average at the start %s", kind, m.CPUs, m.CPU, m.Memory, m.Load))
	line("kernel", m.Kernel)
	for i, text := range m.Mitigations {
		line([]string{"mitigations", ""}[min(i, 1)], text)
	}
	if len(m.Mitigations) == 0 {
		line("mitigations", "none")
	}
	line("offloads", m.Offloads)
	line("clock", m.Clock)
	line("network", fmt.Sprintf("veth, MTU %d, layout %s", s.MTU, s.Layout))
	if s.Table > 0 {
		line("table", numberText(float64(s.Table))+" connections, not loxilb's default")
	}
	var versions []string
	for name, v := range m.Versions {
		versions = append(versions, name+" "+v)
	}
	slices.Sort(versions)
	line("commit", m.Commit+", "+m.Date)
	line("versions", strings.Join(versions, ", "))
	line("method", fmt.Sprintf("%d rounds of %v s, contenders alternate, each set up again after a warm-up; median (least to most)", s.Rounds, s.Seconds))
	line("", "ratios are of one round each, and their median; \"routing\" is the client without a balancer")
	w.Flush()
}

// writeTable writes the table of a workload, with a line for each contender.
func writeTable(b *strings.Builder, r *result, w workload) {
	fmt.Fprintf(b, "%s: %s, %s", w.name, w.title, w.unit)
	if w.less {
		b.WriteString(" (less is better)")
	}
	b.WriteString("\n")
	if len(w.columns) > 0 {
		columnTable(b, r, w)
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  contender\tmedian (least to most)\tto routing\tloxilb to it\tlatency\n")
	var notes []string
	for _, c := range r.contenders(w.name) {
		v := r.of(w.name, c)
		for _, why := range r.invalid(w.name, c) {
			notes = append(notes, fmt.Sprintf("  not valid: %s: %s", c, why))
		}
		if v.Rounds == 0 {
			fmt.Fprintf(t, "  %s\t-\t\t\t\n", c)
			continue
		}
		fmt.Fprintf(t, "  %s\t%s (%s to %s)\t%s\t%s\t%s\n", c, numberText(v.Median), numberText(v.Min), numberText(v.Max),
			ratioText(r.ratio(w.name, c, baseline), c == baseline), ratioText(r.ratio(w.name, counterpart(c), c), c == counterpart(c)), latency(r, w.name, c))
	}
	t.Flush()
	for _, n := range notes {
		b.WriteString(n + "\n")
	}
}

// ratioText returns a ratio as text, empty for the reference itself.
func ratioText(s spread, itself bool) string {
	if s.Rounds == 0 || itself {
		return ""
	}
	return fmt.Sprintf("%.2fx (%.2f to %.2f)", s.Median, s.Min, s.Max)
}

func latency(r *result, workload, contender string) string {
	var out []string
	for _, name := range []string{"min", "mean", "p50", "p99"} {
		if d := r.detail(workload, contender, name+"_us"); d.Rounds > 0 {
			out = append(out, name+" "+micro(d.Median))
		}
	}
	return strings.Join(out, ", ")
}

func micro(us float64) string {
	switch {
	case us >= 10000:
		return fmt.Sprintf("%.0f ms", us/1e3)
	case us >= 1000:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us >= 100:
		return fmt.Sprintf("%.0f us", us)
	}
	return fmt.Sprintf("%.1f us", us)
}

// numberText writes a number with three significant digits, or, from 1,000 on, without decimals and
// in groups of three digits: 12.3 and 1,234,567.
func numberText(v float64) string {
	if v < 0 {
		return "-" + numberText(-v)
	}
	if v < 999.5 { // 3 digits would round it to 1e+03
		return fmt.Sprintf("%.3g", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	var out []string
	for len(digits) > 3 {
		out = append([]string{digits[len(digits)-3:]}, out...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, out...), ",")
}
