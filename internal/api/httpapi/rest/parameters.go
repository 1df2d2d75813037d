package rest

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"loxilb/internal/lb"
)

// RefuseUnknownParameters refuses a request with a query parameter that its operation lacks. Lists
// ignore such a parameter, as the existing loxilb does; a deletion whose filter is misspelt would
// delete more than was meant. params is the generated structure of the operation's parameters; nil
// if it has none. Any change may be forced.
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
