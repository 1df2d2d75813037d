package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// text writes a result for people.
func text(out io.Writer, r *result) error {
	var b strings.Builder
	header(&b, r)
	for _, w := range r.works() {
		b.WriteString("\n")
		table(&b, r, w)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func header(b *strings.Builder, r *result) {
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
		line("table", human(float64(s.Table))+" connections, not loxilb's default")
	}
	var versions []string
	for name, v := range m.Versions {
		versions = append(versions, name+" "+v)
	}
	slices.Sort(versions)
	line("commit", m.Commit+", "+m.Date)
	line("versions", strings.Join(versions, ", "))
	line("method", fmt.Sprintf("%d rounds of %v s, contenders by turns, each set up anew after a warm-up; median (least to most)", s.Rounds, s.Seconds))
	line("", "ratios are of one round each, and their median; \"routing\" is the client without a balancer")
	w.Flush()
}

// table is a work's: a line for each contender.
func table(b *strings.Builder, r *result, w work) {
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
		fmt.Fprintf(t, "  %s\t%s (%s to %s)\t%s\t%s\t%s\n", c, human(v.Median), human(v.Min), human(v.Max),
			times(r.ratio(w.name, c, baseline), c == baseline), times(r.ratio(w.name, fairPair(c), c), c == fairPair(c)), latency(r, w.name, c))
	}
	t.Flush()
	for _, n := range notes {
		b.WriteString(n + "\n")
	}
}

// times writes a ratio; nothing for what is compared with itself.
func times(s spread, itself bool) string {
	if s.Rounds == 0 || itself {
		return ""
	}
	return fmt.Sprintf("%.2fx (%.2f to %.2f)", s.Median, s.Min, s.Max)
}

func latency(r *result, work, contender string) string {
	var out []string
	for _, name := range []string{"min", "mean", "p50", "p99"} {
		if d := r.detail(work, contender, name+"_us"); d.Rounds > 0 {
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

// human writes a number with as many digits as mean something: 1,234,000 and 12.3.
func human(v float64) string {
	if v < 0 {
		return "-" + human(-v)
	}
	if v < 1000 {
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
