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
	width  []int // of the columns, once something was printed
}

func newTable(header ...string) *table {
	t := &table{header: make([]string, len(header))}
	for i, h := range header {
		t.header[i] = strings.ToUpper(h)
	}
	return t
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// addLines adds an object whose cells have several lines: one row for each, with blanks where a cell has no more.
func (t *table) addLines(cells ...[]string) {
	lines := 1
	for _, c := range cells {
		lines = max(lines, len(c))
	}
	for line := range lines {
		row := make([]string, len(cells))
		for i, c := range cells {
			if line < len(c) {
				row[i] = c[line]
			}
		}
		t.add(row...)
	}
}

// String is the whole table.
func (t *table) String() string { return t.chunk() }

// chunk is what was added since the last chunk, the first one with the header. Columns are as wide as they had to be
// so far, so a table in several chunks may become wider on its way.
func (t *table) chunk() string {
	first := t.width == nil
	if first {
		t.width = make([]int, len(t.header))
		t.widen(t.header)
	}
	for _, r := range t.rows {
		t.widen(r)
	}
	var b strings.Builder
	if first {
		t.printHeader(&b)
	}
	for _, r := range t.rows {
		for i, c := range r {
			left := 0
			if number(c) {
				left = t.width[i] - len(c)
			}
			cell(&b, c, left, t.width[i])
		}
		b.WriteString("|\n")
	}
	t.rows = t.rows[:0]
	return b.String()
}

func (t *table) widen(row []string) {
	for i, c := range row {
		t.width[i] = max(t.width[i], utf8.RuneCountInString(c))
	}
}

func (t *table) printHeader(b *strings.Builder) {
	for i, h := range t.header {
		cell(b, h, (t.width[i]-utf8.RuneCountInString(h))/2, t.width[i])
	}
	b.WriteString("|\n")
	for _, w := range t.width {
		b.WriteString("|" + strings.Repeat("-", w+2))
	}
	b.WriteString("|\n")
}

func cell(b *strings.Builder, s string, left, width int) {
	b.WriteString("| " + strings.Repeat(" ", left) + s)
	b.WriteString(strings.Repeat(" ", width-left-utf8.RuneCountInString(s)+1))
}

func number(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
