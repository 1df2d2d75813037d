package compat

import (
	"net/http"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/contract"
)

// RegisterNotBuilt, which panics if the table says so of an operation that is built, has what the
// contract has and this build does not answered in one sentence, so that clients can tell it from a
// path that nobody knows.
func RegisterNotBuilt(mux *http.ServeMux) {
	for _, o := range contract.AllOperations() {
		if o.State != contract.NotThere {
			continue
		}
		mux.HandleFunc(o.Method+" "+rest.BaseURL+o.Path, func(w http.ResponseWriter, r *http.Request) {
			rest.Refuse(http.StatusNotImplemented, "%s %s: %s", r.Method, r.URL.Path, o.Note).Write(w)
		})
	}
}
