package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A document's block between <!-- results NAME --> and <!-- end --> is made from the results of
// that name, so that no number in it is typed.
var block = regexp.MustCompile(`(?s)<!-- results ([\w-]+) -->\n.*?<!-- end -->`)

// docs writes the blocks of documents anew: `bench docs RESULTS FILE...`.
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

// fillBlocks fills the blocks of a text in a directory from a directory of results, to which it
// links.
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
		name := block.FindStringSubmatch(old)[1]
		content, err := blockOf(filepath.Join(results, name), link+"/"+name)
		if errors.Is(err, fs.ErrNotExist) {
			content, err = "Not measured yet.\n", nil
		}
		failed = errors.Join(failed, err)
		return "<!-- results " + name + " -->\n" + content + "<!-- end -->"
	})
	return out, failed
}

// blockOf returns the chart and a table of rates, or the text of other results. Link is how the
// document calls the path.
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

// markdown is tables: of each work plain routing's rate, and how many times that of each rival
// loxilb does; and of each work that has columns one of its own.
func markdown(r *result) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%d CPUs, %s; Linux %s; commit %s, %s; medians of %d rounds (least to most).\n\n", m.CPUs, m.CPU, m.Kernel, m.Commit, m.Date, r.Setting.Rounds)
	rates := slices.DeleteFunc(r.works(), func(w work) bool { return len(w.columns) > 0 })
	if len(rates) > 0 {
		rateTable(&b, r, rates)
	}
	for _, w := range r.works() {
		if len(w.columns) > 0 {
			columnMarkdown(&b, r, w)
		}
	}
	return b.String()
}

// rateTable is a line for each work.
func rateTable(b *strings.Builder, r *result, works []work) {
	rivals := []string{"bare", "nft-one", "nft", "ipvs-one", "ipvs", "haproxy-one", "haproxy", "nginx-one", "nginx"}
	b.WriteString("| measure | plain routing | loxilb to it, same endpoint |")
	line := "\n|---|---|---|"
	var shown []string
	for _, c := range rivals {
		for _, w := range works {
			if r.ratio(w.name, fairPair(c), c).Rounds > 0 {
				shown = append(shown, c)
				b.WriteString(" to " + c + " |")
				line += "---|"
				break
			}
		}
	}
	b.WriteString(line + "\n")
	for _, w := range works {
		plain := r.of(w.name, baseline)
		if w.less && plain.Rounds == 0 {
			continue // plain routing holds no connections
		}
		same := r.ratio(w.name, fairPair(baseline), baseline)
		if same.Rounds == 0 {
			same = r.ratio(w.name, "loxilb", baseline)
		}
		title := w.title
		if w.less {
			title += " (less is better)"
		}
		cells := []string{title, human(plain.Median) + " " + w.unit, times(same, false)}
		for _, c := range shown {
			cells = append(cells, times(r.ratio(w.name, fairPair(c), c), false))
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
}
