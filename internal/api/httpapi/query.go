package httpapi

import (
	"net/http"
	"slices"
	"strconv"

	"loxilb/internal/api/listing"
	"loxilb/internal/lb"
)

// queryOf is what the parameters of a list ask for; fields are those of its objects.
func queryOf(fields *listing.Fields, name, selector, sortBy string, limit int, after string) (*listing.Query, *problem) {
	q := &listing.Query{Sort: sortBy, Limit: limit, Continue: after}
	var err error
	if name != "" {
		if q.Names, err = listing.SplitNames(name); err != nil {
			return nil, refuse(http.StatusBadRequest, "name: %v", err)
		}
		q.Names = slices.DeleteFunc(q.Names, func(s string) bool { return s == "" })
	}
	if q.Where, err = listing.ParseSelector(selector); err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if err := q.Where.Resolve(fields, lb.PropertyText); err != nil {
		return nil, refuse(http.StatusBadRequest, "selector: %v", err)
	}
	if err := q.ResolveSort(fields); err != nil {
		return nil, refuse(http.StatusBadRequest, "sortBy: %v", err)
	}
	if limit < 0 {
		return nil, refuseField(http.StatusBadRequest, "limit", strconv.Itoa(limit), "is negative", "0 (no limit) or more")
	}
	return q, nil
}

// writePage answers with the rows of a list that are asked for.
func writePage[R any](w http.ResponseWriter, r *http.Request, key string, list *listing.List[R], q *listing.Query, answer func(R) any) {
	if err := q.Check(); err != nil {
		refuse(http.StatusBadRequest, "%v", err).write(w)
		return
	}
	out, rows := newStream(w, key), list.Rows
	list.Rows = func(yield func(R) bool) {
		for one := range rows {
			if r.Context().Err() != nil || !yield(one) { // nobody may be chosen for long
				return
			}
		}
	}
	next := list.Page(q, func(row R) bool { return r.Context().Err() == nil && out.item(answer(row)) })
	if r.Context().Err() == nil {
		out.endPage(next)
	}
}

// window is the part of a list that is asked for.
func window(b listing.Bounds, offset, limit int) (listing.Window, *problem) {
	part, err := b.Window(offset, limit)
	var fe *lb.FieldError
	if asError(err, &fe) {
		return part, fieldProblem(http.StatusBadRequest, fe)
	}
	return part, nil
}
