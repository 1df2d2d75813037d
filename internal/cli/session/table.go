package session

import (
	"strings"
	"unicode/utf8"
)

// Table prints rows between bars, under a header in capitals:
//
//	|  EXT IP  | PORT | PROTO |
//	|----------|------|-------|
//	| 10.0.0.1 |   80 | tcp   |
type Table struct {
	header []string
	rows   [][]string
	width  []int // of the columns, once something was printed
	bare   bool  // without a header
}

// NewTable is a table of these columns, without a row.
func NewTable(header ...string) *Table {
	t := &Table{header: make([]string, len(header))}
	for i, h := range header {
		t.header[i] = strings.ToUpper(h)
	}
	return t
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// AddLines adds an object whose cells have several lines: one row for each, with blanks where a cell has no more.
func (t *Table) AddLines(cells ...[]string) {
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
		t.Add(row...)
	}
}

// Columns is how many there are.
func (t *Table) Columns() int { return len(t.header) }

// Waiting is how many rows were added since the last chunk.
func (t *Table) Waiting() int { return len(t.rows) }

// String is the whole table.
func (t *Table) String() string { return t.Chunk() }

// Chunk is what was added since the last chunk, the first one with the header. Columns are as wide as they had to be
// so far, so a table in several chunks may become wider on its way.
func (t *Table) Chunk() string {
	first := t.width == nil
	if first {
		t.width = make([]int, len(t.header))
		if !t.bare {
			t.widen(t.header)
		}
	}
	for _, r := range t.rows {
		t.widen(r)
	}
	var b strings.Builder
	if first && !t.bare {
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

func (t *Table) widen(row []string) {
	for i, c := range row {
		t.width[i] = max(t.width[i], utf8.RuneCountInString(c))
	}
}

func (t *Table) printHeader(b *strings.Builder) {
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
