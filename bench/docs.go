package main

import (
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A document's block between <!-- results NAME --> and <!-- end --> is made from the results of
// that name, so no number in it is typed. NAME chart is the chart alone, and NAME: A; B only
// the lines that begin with A or B.
var block = regexp.MustCompile(`(?s)<!-- results ([\w-]+)( chart|: [^>]*)? -->\n.*?<!-- end -->`)

// docs updates the result blocks of documents: `bench docs RESULTS FILE...`.
func docs(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: bench docs RESULTS FILE [FILE]")
	}
	for _, path := range args[1:] {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := fillBlocks(string(b), filepath.Dir(path), args[0])
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fillBlocks fills the blocks of a text from the results in another directory, and links to them.
func fillBlocks(text, dir, results string) (string, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(results)
	if err != nil {
		return "", err
	}
	link, err := filepath.Rel(from, to)
	if err != nil {
		return "", err
	}
	var failed error
	out := block.ReplaceAllStringFunc(text, func(old string) string {
		found := block.FindStringSubmatch(old)
		name, part := found[1], found[2]
		content, err := blockOf(filepath.Join(results, name), link+"/"+name)
		if errors.Is(err, fs.ErrNotExist) {
			content, err = "Not measured yet.\n", nil
		}
		failed = errors.Join(failed, err)
		return "<!-- results " + name + part + " -->\n" + partOf(content, part) + "<!-- end -->"
	})
	return out, failed
}

// partOf returns the part of a block's content that its head selects.
func partOf(content, part string) string {
	if part == "" {
		return content
	}
	beginnings := []string{"![", "```"}
	if list, ok := strings.CutPrefix(part, ": "); ok {
		beginnings = append(beginnings, strings.Split(list, "; ")...)
	}
	var b strings.Builder
	for line := range strings.Lines(content) {
		if slices.ContainsFunc(beginnings, func(word string) bool { return strings.HasPrefix(line, word) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// blockOf returns the chart and a table of rates, or the text of other results. link is the
// document's path to them.
func blockOf(path, link string) (string, error) {
	b, err := os.ReadFile(path + ".json")
	if err != nil {
		return "", err
	}
	r, err := parseResult(path, b)
	if err != nil {
		return "", err
	}
	if len(r.Samples) > 0 && len(drawn(r)) == 0 {
		return markdown(r), nil
	}
	if len(r.Samples) > 0 {
		return "![ratios to plain routing](" + link + ".svg)\n\n" + markdown(r), nil
	}
	text, err := os.ReadFile(path + ".txt")
	return "```text\n" + string(text) + "```\n", err
}

// markdown returns a table of plain routing's rates and loxilb's ratios to its rivals, and a table
// for each workload with columns.
func markdown(r *result) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%d CPUs, %s; Linux %s; commit %s, %s; medians of %d rounds (least to most).\n\n", m.CPUs, m.CPU, m.Kernel, m.Commit, m.Date, r.Setting.Rounds)
	rates := slices.DeleteFunc(r.workloads(), func(w workload) bool { return len(w.columns) > 0 })
	if len(rates) > 0 {
		rateTable(&b, r, rates)
	}
	var workloads []workload
	for _, w := range r.workloads() {
		if len(w.columns) > 0 {
			workloads = append(workloads, w)
		}
	}
	columnMarkdown(&b, r, workloads)
	return b.String()
}

// rateTable is a line for each workload.
func rateTable(b *strings.Builder, r *result, workloads []workload) {
	rivals := []string{"bare", "nft-one", "nft", "ipvs-one", "ipvs", "haproxy-one", "haproxy", "nginx-one", "nginx"}
	b.WriteString("| measure | plain routing | loxilb to it, same endpoint |")
	line := "\n|---|---|---|"
	var shown []string
	for _, c := range rivals {
		for _, w := range workloads {
			if r.ratio(w.name, counterpart(c), c).Rounds > 0 {
				shown = append(shown, c)
				b.WriteString(" to " + c + " |")
				line += "---|"
				break
			}
		}
	}
	b.WriteString(line + "\n")
	for _, w := range workloads {
		plain := r.of(w.name, baseline)
		if w.less && plain.Rounds == 0 {
			continue // plain routing holds no connections
		}
		same := r.ratio(w.name, counterpart(baseline), baseline)
		if same.Rounds == 0 {
			same = r.ratio(w.name, "loxilb", baseline)
		}
		title := w.title
		if w.less {
			title += " (less is better)"
		}
		cells := []string{title, numberText(plain.Median) + " " + w.unit, ratioText(same, false)}
		for _, c := range shown {
			cells = append(cells, ratioText(r.ratio(w.name, counterpart(c), c), false))
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
}

// The chart's measures, in pixels.
const (
	chartMargin  = 16
	chartWidth   = 2*chartMargin + chartPanels*panelWidth + panelGap
	panelWidth   = 540
	panelGap     = 40
	barHeight    = 16
	barGap       = 5
	labelWidth   = 110
	valueWidth   = 130
	panelTitle   = 34
	panelBottom  = 18
	chartTop     = 92
	chartBottom  = 16
	chartPanels  = 2 // side by side
	widestRatio  = 3.0
	textSize     = 12
	oursColour   = "#1b6ca8"
	othersColour = "#9aa5b1"
	baseColour   = "#444c56"
)

// chart draws a result as SVG, with a panel for each workload. The length of a contender's bar is
// its ratio to plain routing; a line shows the range of the rounds.
func chart(out io.Writer, r *result) error {
	var body strings.Builder
	x, y, row := chartMargin, chartTop, 0
	for i, w := range drawn(r) {
		h := panel(&body, r, w, x, y)
		row = max(row, h)
		x += panelWidth + panelGap
		if (i+1)%chartPanels == 0 {
			x, y, row = chartMargin, y+row, 0
		}
	}
	height := y + row + chartBottom
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">
<rect width="100%%" height="100%%" fill="white"/>
%s%s</svg>
`, chartWidth, height, textSize, chartHead(r), body.String())
	return err
}

// drawn returns the workloads that have a ratio to show.
func drawn(r *result) (out []workload) {
	for _, w := range r.workloads() {
		if len(r.values(w.name, baseline)) > 0 && !w.less && len(w.columns) == 0 {
			out = append(out, w)
		}
	}
	return out
}

func chartHead(r *result) string {
	m, s := r.Machine, r.Setting
	return fmt.Sprintf(`<text x="16" y="28" font-size="18" font-weight="bold">Compared with plain routing, without a load balancer (%s)</text>
<text x="16" y="48">%s</text>
<text x="16" y="66" fill="#57606a">Bars: medians, lines: the least and the most (rounds: %d); longer is better. Beside them the ratio, and the measured rate.</text>
`, html.EscapeString(r.Name), html.EscapeString(fmt.Sprintf("%d CPUs, %s; Linux %s; MTU %d, layout %s; commit %s", m.CPUs, m.CPU, m.Kernel, s.MTU, s.Layout, m.Commit)), s.Rounds)
}

// panel draws a workload and returns its height.
func panel(b *strings.Builder, r *result, w workload, x, y int) int {
	fmt.Fprintf(b, `<g transform="translate(%d,%d)">`+"\n", x, y)
	fmt.Fprintf(b, `<text x="0" y="16" font-weight="bold">%s</text>`+"\n", html.EscapeString(w.title))
	names := r.contenders(w.name)
	most := 1.0
	for _, c := range names {
		most = max(most, min(r.ratio(w.name, c, baseline).Max, widestRatio))
	}
	scale := float64(panelWidth-labelWidth-valueWidth) / (most * 1.02)
	at, one := panelTitle, labelWidth+scale
	end := at + len(names)*(barHeight+barGap)
	fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#d1242f" stroke-dasharray="3 3"/>`+"\n", one, one, panelTitle-6, end)
	for _, c := range names {
		bar(b, r, w, c, at, scale)
		at += barHeight + barGap
	}
	b.WriteString("</g>\n")
	return at + panelBottom
}

func bar(b *strings.Builder, r *result, w workload, contender string, y int, scale float64) {
	middle := float64(y) + barHeight/2
	fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`, labelWidth-6, middle+4, html.EscapeString(contender))
	ratio, value := r.ratio(w.name, contender, baseline), r.of(w.name, contender)
	if ratio.Rounds == 0 {
		fmt.Fprintf(b, `<text x="%d" y="%.0f" fill="#57606a">not valid</text>`+"\n", labelWidth+4, middle+4)
		return
	}
	colour := othersColour
	switch {
	case contender == baseline:
		colour = baseColour
	case strings.HasPrefix(contender, "loxilb"):
		colour = oursColour
	}
	to := func(v float64) float64 { return labelWidth + scale*math.Min(v, widestRatio) }
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelWidth, y, to(ratio.Median)-labelWidth, barHeight, colour)
	if ratio.Max > ratio.Min {
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f M%.1f %.1fv6 M%.1f %.1fv6" stroke="black" fill="none"/>`,
			to(ratio.Min), middle, to(ratio.Max), to(ratio.Min), middle-3, to(ratio.Max), middle-3)
	}
	label := fmt.Sprintf("%.2f", ratio.Median)
	if ratio.Median > widestRatio {
		label += ", off the scale"
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.0f" stroke="white" stroke-width="3" paint-order="stroke"><tspan font-weight="bold">%s</tspan>  <tspan fill="#57606a">%s %s</tspan></text>`+"\n",
		to(ratio.Max)+6, middle+4, label, numberText(value.Median), html.EscapeString(shortUnit(w.unit)))
}

// shortUnit returns a unit as the chart has room for it.
func shortUnit(unit string) string {
	if _, per, ok := strings.Cut(unit, "/"); ok && !strings.HasPrefix(unit, "Gbit") {
		return "/" + per
	}
	return unit
}
