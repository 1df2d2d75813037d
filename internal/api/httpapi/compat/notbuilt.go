package compat

import (
	"net/http"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/contract"
)

// RegisterNotBuilt answers the existing loxilb's operations that this build lacks with one sentence
// each, so clients can tell them from unknown paths. It panics if an operation is built after all.
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
