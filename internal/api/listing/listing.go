// Package listing selects, sorts and pages lists of objects on either side of the API: in the
// daemon, so clients read only what they need, and in loxicmd, for lists that the daemon
// returns as a whole.
package listing

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Query selects, sorts and pages a list.
type Query struct {
	Names    []string // select any of these names; none: all objects
	Where    Selector
	Sort     string // field to sort by; with "-" before it, descending; "": the order of the list
	Limit    int    // 0: all
	Continue string // the end of the previous page, from its answer
}

// List is a list of rows that are computed on demand.
type List[R any] struct {
	Rows       iter.Seq[R]
	Key        func(R) string               // the unique name of the row
	Order      func(a, b string) int        // of keys, in which Rows has them
	Passed     func(r R, after string) bool // reports whether a page that ended at the key after had the row; nil: by Order
	OtherNames func(R) []string             // other names; nil: none
	Values     func(R, string) []string     // the values of a row's field
}

// continuation is the decoded Query.Continue: the last row of the previous page.
type continuation struct {
	Key    string `json:"k"`
	Sorted string `json:"s,omitempty"`
}

// errContinue refuses a continuation.
var errContinue = errors.New("is not the end of a page")

func (p continuation) String() string {
	b, _ := json.Marshal(p) // two strings
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseContinuation(s string) (p continuation, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Key == "" {
		return p, fmt.Errorf("continue %q %w (allowed: the value in the previous answer)", s, errContinue)
	}
	return p, nil
}

// Resolve replaces names of fields by paths. value normalizes a value for a field.
func (s Selector) Resolve(fields *Fields, value func(path, value string) string) (err error) {
	for i := range s {
		one := &s[i]
		if one.Field, err = fields.Find(one.Field); err != nil {
			return err
		}
		for v := range one.Values {
			if one.Prefix {
				break
			}
			one.Values[v] = value(one.Field, one.Values[v])
		}
	}
	return nil
}

// ResolveSort replaces the name of the field to sort by with its path.
func (q *Query) ResolveSort(fields *Fields) error {
	if q.Sort == "" {
		return nil
	}
	name, down := strings.CutPrefix(q.Sort, "-")
	path, err := fields.Find(name)
	if err != nil {
		return err
	}
	if q.Sort = path; down {
		q.Sort = "-" + path
	}
	return nil
}

// Check refuses an invalid Continue.
func (q *Query) Check() error {
	if q.Continue == "" {
		return nil
	}
	_, err := parseContinuation(q.Continue)
	return err
}

// after returns the end of the previous page; nil: this is the first.
func (q *Query) after() *continuation {
	if p, err := parseContinuation(q.Continue); err == nil {
		return &p
	}
	return nil
}

// After returns the key of the last row of the previous page of an unsorted list; "": there was
// none.
func (q *Query) After() string {
	if after := q.after(); after != nil && q.Sort == "" {
		return after.Key
	}
	return ""
}

// Page yields the rows of a page until yield returns false, and returns the start of the next page,
// or "".
func (l *List[R]) Page(q *Query, yield func(R) bool) (next string) {
	after := q.after()
	if q.Sort != "" {
		return l.sorted(q, after, yield)
	}
	count := 0
	var last R
	for r := range l.Rows {
		if after != nil && l.isPassed(r, after.Key) || !l.isSelected(q, r) {
			continue
		}
		if q.Limit > 0 && count == q.Limit {
			return continuation{Key: l.Key(last)}.String()
		}
		if !yield(r) {
			return ""
		}
		count, last = count+1, r
	}
	return ""
}

func (l *List[R]) isPassed(r R, after string) bool {
	if l.Passed != nil {
		return l.Passed(r, after)
	}
	return l.Order(l.Key(r), after) <= 0
}

func (l *List[R]) isSelected(q *Query, r R) bool {
	if len(q.Names) > 0 && !slices.Contains(q.Names, l.Key(r)) &&
		(l.OtherNames == nil || !slices.ContainsFunc(l.OtherNames(r), func(name string) bool { return slices.Contains(q.Names, name) })) {
		return false
	}
	return q.Where.Matches(func(field string) []string { return l.Values(r, field) })
}

// sorted is Page in the order of a field's values, and for equal ones in the order of the list.
func (l *List[R]) sorted(q *Query, after *continuation, yield func(R) bool) (next string) {
	type row struct {
		row R
		at  continuation
	}
	field, down := strings.CutPrefix(q.Sort, "-")
	compare := func(a, b *continuation) int {
		c := Compare(a.Sorted, b.Sorted)
		if down {
			c = -c
		}
		return cmp.Or(c, l.Order(a.Key, b.Key))
	}
	var rows []row
	for r := range l.Rows {
		if !l.isSelected(q, r) {
			continue
		}
		p := continuation{l.Key(r), strings.Join(l.Values(r, field), ",")}
		if after == nil || compare(&p, after) > 0 {
			rows = append(rows, row{r, p})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return compare(&a.at, &b.at) })
	for i := range rows {
		if q.Limit > 0 && i == q.Limit {
			return rows[i-1].at.String()
		}
		if !yield(rows[i].row) {
			return ""
		}
	}
	return ""
}

// Compare orders values: addresses first, in numerical order, then text, with numbers within text
// in numerical order, so eth2 comes before eth10.
func Compare(a, b string) int {
	x, errA := netip.ParseAddr(a)
	y, errB := netip.ParseAddr(b)
	switch {
	case errA == nil && errB == nil:
		return x.Compare(y)
	case errA == nil:
		return -1
	case errB == nil:
		return 1
	}
	for a != "" && b != "" {
		n, m := digits(a), digits(b)
		if n == 0 || m == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:n], "0"), strings.TrimLeft(b[:m], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns the number of leading digits of s.
func digits(s string) int {
	n := len(s) - len(strings.TrimLeft(s, "0123456789"))
	return n
}
