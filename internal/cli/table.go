package cli

import (
	"strings"
	"unicode/utf8"
)

// table prints rows between bars, under a header in capitals:
//
//	|  EXT IP  | PORT | PROTO |
//	|----------|------|-------|
//	| 10.0.0.1 |   80 | tcp   |
type table struct {
	header []string
	rows   [][]string
}

func newTable(header ...string) *table {
	t := &table{header: make([]string, len(header))}
	for i, h := range header {
		t.header[i] = strings.ToUpper(h)
	}
	return t
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	width := make([]int, len(t.header))
	for i, h := range t.header {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for i, h := range t.header {
		left := (width[i] - utf8.RuneCountInString(h)) / 2
		cell(&b, h, left, width[i])
	}
	b.WriteString("|\n")
	for _, w := range width {
		b.WriteString("|" + strings.Repeat("-", w+2))
	}
	b.WriteString("|\n")
	for _, r := range t.rows {
		for i, c := range r {
			left := 0
			if number(c) {
				left = width[i] - len(c)
			}
			cell(&b, c, left, width[i])
		}
		b.WriteString("|\n")
	}
	return b.String()
}

func cell(b *strings.Builder, s string, left, width int) {
	b.WriteString("| " + strings.Repeat(" ", left) + s)
	b.WriteString(strings.Repeat(" ", width-left-utf8.RuneCountInString(s)+1))
}

func number(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
