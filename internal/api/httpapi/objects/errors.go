package objects

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
)

// maxErrors bounds the errors reported for a list.
const maxErrors = 1000

// objectErrors collects the errors of the objects of a list.
type objectErrors struct{ list []v1.ObjectError }

func (e *objectErrors) add(index int, p *rest.Problem) {
	if len(p.Body.Errors) == 0 {
		e.list = append(e.list, v1.ObjectError{Index: index, Field: p.Body.Field, Message: p.Body.Message})
		return
	}
	for _, one := range p.Body.Errors {
		one.Index = index
		e.list = append(e.list, one)
	}
}

// addError is add for any error, or none.
func (e *objectErrors) addError(index int, err error) {
	var p *rest.Problem
	switch {
	case err == nil:
		return
	case !errors.As(err, &p):
		p = rest.Refuse(http.StatusBadRequest, "%v", err)
	}
	e.add(index, p)
}

// full reports whether no further errors are collected.
func (e *objectErrors) full() bool { return len(e.list) >= maxErrors }

// problem returns nil when nothing is wrong.
func (e *objectErrors) problem(of int) *rest.Problem {
	if len(e.list) == 0 {
		return nil
	}
	p := rest.Refuse(http.StatusBadRequest, "nothing was changed: %s", e.first())
	if n := len(e.list); n > 1 {
		count := strconv.Itoa(n)
		if e.full() {
			count = strconv.Itoa(maxErrors) + " or more"
		}
		objects := "1 object"
		if of != 1 {
			objects = strconv.Itoa(of) + " objects"
		}
		p = rest.Refuse(http.StatusBadRequest, "nothing was changed: %s errors in %s, the first in %s", count, objects, e.first())
	}
	p.Body.Errors = e.list[:min(len(e.list), maxErrors)]
	return p
}

// first returns the first error.
func (e *objectErrors) first() string {
	if e.list[0].Index < 0 {
		return e.list[0].Message // an error that concerns no object of the list
	}
	return fmt.Sprintf("objects[%d]: %s", e.list[0].Index, e.list[0].Message)
}
