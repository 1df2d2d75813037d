package listing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"loxilb/internal/lb"
)

// Window is the part of a list that a screen shows. A Query, by contrast, pages a list that is read
// to its end, each row once.
type Window struct {
	Offset int // rows before it
	Limit  int // number of rows; 0: all
}

// Bounds are the limits of windows.
type Bounds struct {
	Limit     int // by default; 0: all
	MaxLimit  int // 0: any
	MaxOffset int // 0: any
}

// Window checks an offset and a limit.
func (b Bounds) Window(offset, limit int) (Window, error) {
	if offset < 0 || b.MaxOffset > 0 && offset > b.MaxOffset {
		return Window{}, lb.NewFieldError("offset", strconv.Itoa(offset), "is out of range", span(0, b.MaxOffset))
	}
	if limit < 0 || b.MaxLimit > 0 && limit > b.MaxLimit {
		return Window{}, lb.NewFieldError("limit", strconv.Itoa(limit), "is out of range", span(min(b.Limit, 1), b.MaxLimit))
	}
	return Window{offset, cmp.Or(limit, b.Limit)}, nil
}

func span(first, last int) string {
	if last == 0 {
		return fmt.Sprintf("%d or more", first)
	}
	return fmt.Sprintf("%d to %d", first, last)
}

// Cut returns the part of a list that is in a window.
func Cut[T any](list []T, w Window) []T {
	list = list[min(w.Offset, len(list)):]
	if w.Limit > 0 {
		list = list[:min(w.Limit, len(list))]
	}
	return list
}

// SortedPart collects the rows of a window from a long list in any order. It holds at most twice
// the rows up to the end of the window, or twice Max of them.
type SortedPart[R any] struct {
	Window Window            // with a limit
	Order  func(a, b *R) int // nil: in the order of Add
	Max    int               // rows that are sorted; the window may begin behind them
	Total  int               // added rows
	rows   []R
}

// Add adds a row of the list.
func (p *SortedPart[R]) Add(row *R) {
	p.Total++
	if p.Order == nil {
		if p.Total > p.Window.Offset && !p.IsComplete() {
			p.rows = append(p.rows, *row)
		}
		return
	}
	if p.rows = append(p.rows, *row); len(p.rows) >= 2*p.most() {
		p.trim()
	}
}

// IsComplete reports whether further rows cannot change the part.
func (p *SortedPart[R]) IsComplete() bool { return p.Order == nil && len(p.rows) == p.Window.Limit }

// most returns the number of rows that are needed.
func (p *SortedPart[R]) most() int { return min(p.Max, p.Window.Offset+p.Window.Limit) }

// trim keeps the needed rows, sorted.
func (p *SortedPart[R]) trim() {
	slices.SortStableFunc(p.rows, func(a, b R) int { return p.Order(&a, &b) })
	p.rows = p.rows[:min(len(p.rows), p.most())]
}

// Rows returns the rows of the window.
func (p *SortedPart[R]) Rows() []R {
	if p.Order == nil {
		return p.rows
	}
	p.trim()
	return p.rows[min(p.Window.Offset, len(p.rows)):]
}
