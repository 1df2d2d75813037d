package rest

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/api/listing"
	"loxilb/internal/lb"
)

// ParseQuery parses the parameters of a list; fields are the properties of its objects.
func ParseQuery(fields *listing.Fields, name, selector, sortBy string, limit int, after string) (*listing.Query, *Problem) {
	q := &listing.Query{Sort: sortBy, Limit: limit, Continue: after}
	var err error
	if name != "" {
		if q.Names, err = listing.SplitNames(name); err != nil {
			return nil, Refuse(http.StatusBadRequest, "name: %v", err)
		}
		q.Names = slices.DeleteFunc(q.Names, func(s string) bool { return s == "" })
	}
	if q.Where, err = listing.ParseSelector(selector); err != nil {
		return nil, Refuse(http.StatusBadRequest, "%v", err)
	}
	if err := q.Where.Resolve(fields, lb.PropertyText); err != nil {
		return nil, Refuse(http.StatusBadRequest, "selector: %v", err)
	}
	if err := q.ResolveSort(fields); err != nil {
		return nil, Refuse(http.StatusBadRequest, "sortBy: %v", err)
	}
	if limit < 0 {
		return nil, RefuseField(http.StatusBadRequest, "limit", strconv.Itoa(limit), "is negative", "0 (no limit) or more")
	}
	return q, nil
}

// WritePage writes the requested rows of a list.
func WritePage[R any](w http.ResponseWriter, r *http.Request, key string, list *listing.List[R], q *listing.Query, answer func(R) any) {
	if err := q.Check(); err != nil {
		Refuse(http.StatusBadRequest, "%v", err).Write(w)
		return
	}
	out, rows := NewList(w, key), list.Rows
	list.Rows = func(yield func(R) bool) {
		for one := range rows {
			if r.Context().Err() != nil || !yield(one) { // checked for each row, since many rows in succession may not match
				return
			}
		}
	}
	next := list.Page(q, func(row R) bool { return r.Context().Err() == nil && out.Item(answer(row)) })
	if r.Context().Err() == nil {
		out.EndPage(next)
	}
}

// Window returns the requested part of a list.
func Window(b listing.Bounds, offset, limit int) (listing.Window, *Problem) {
	part, err := b.Window(offset, limit)
	var fe *lb.FieldError
	if errors.As(err, &fe) {
		return part, RefuseError(http.StatusBadRequest, fe)
	}
	return part, nil
}

// RefuseUnknownParameters refuses a query parameter that the operation lacks: a deletion with a
// misspelt filter would delete too much. Lists of the existing loxilb ignore such a parameter.
// params is the generated structure of the operation's parameters; nil if it has none. force is
// valid for any change.
func RefuseUnknownParameters(r *http.Request, params any) *Problem {
	known := parameterNames(params)
	for name := range r.URL.Query() {
		if name == "force" || slices.Contains(known, name) {
			continue
		}
		allowed := "no parameters"
		if len(known) > 0 {
			allowed = strings.Join(known, ", ")
		}
		return Invalid("parameter", lb.Printable(name), "is not known", allowed)
	}
	return nil
}

func parameterNames(params any) (names []string) {
	if params == nil {
		return nil
	}
	t := reflect.TypeOf(params)
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("form"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
