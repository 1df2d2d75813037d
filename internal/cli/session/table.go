package session

import (
	"cmp"
	"slices"
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
	width  []int // of the columns, after the first chunk
	bare   bool  // without a header

	optional map[string][]string // by header: a column is omitted if all its cells have one of these values; none: any value
	renamed  map[string]string   // by the contract's header: the header of a compact table
}

// NewTable returns a table of these columns, without a row.
func NewTable(header ...string) *Table {
	t := &Table{header: make([]string, len(header))}
	for i, h := range header {
		t.header[i] = strings.ToUpper(h)
	}
	return t
}

// Add adds a row.
func (t *Table) Add(cells ...string) {
	for i, c := range cells {
		cells[i] = OneLine(c)
	}
	t.rows = append(t.rows, cells)
}

// AddLines adds an object whose cells have several lines: one row for each, with blanks where a
// cell has fewer.
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

// LeaveOut omits a column of a compact table if all its cells have one of these values, or are
// empty. Without values the column is always omitted.
func (t *Table) LeaveOut(column string, values ...string) {
	if t.optional == nil {
		t.optional = map[string][]string{}
	}
	t.optional[strings.ToUpper(column)] = values
}

// Rename changes the header of a column in a compact table.
func (t *Table) Rename(column, header string) {
	if t.renamed == nil {
		t.renamed = map[string]string{}
	}
	t.renamed[strings.ToUpper(column)] = strings.ToUpper(header)
}

// compact removes uninformative columns. A table without rows stays unchanged.
func (t *Table) compact(empty bool) {
	if len(t.rows) == 0 {
		return
	}
	var keep []int
	for i, h := range t.header {
		values, optional := t.optional[h]
		if optional && len(values) == 0 || (optional || empty) && !t.hasOther(i, values) {
			continue
		}
		keep = append(keep, i)
	}
	pick := func(row []string) []string {
		out := make([]string, 0, len(keep))
		for _, i := range keep {
			if i < len(row) {
				out = append(out, row[i])
			}
		}
		return out
	}
	for i, h := range t.header {
		t.header[i] = cmp.Or(t.renamed[h], h)
	}
	t.header = pick(t.header)
	for i := range t.rows {
		t.rows[i] = pick(t.rows[i])
	}
}

// hasOther reports whether a cell of a column has another value than these.
func (t *Table) hasOther(column int, values []string) bool {
	return slices.ContainsFunc(t.rows, func(row []string) bool {
		return column < len(row) && row[column] != "" && !slices.Contains(values, row[column])
	})
}

// Columns returns the number of columns.
func (t *Table) Columns() int { return len(t.header) }

// Waiting returns the number of rows added since the last chunk.
func (t *Table) Waiting() int { return len(t.rows) }

// String returns the whole table.
func (t *Table) String() string { return t.Chunk() }

// Chunk returns the rows added since the last chunk, the first one with the header. Columns are as
// wide as needed so far, so a table in several chunks may become wider.
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
