package listing

import (
	"cmp"
	"fmt"
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
