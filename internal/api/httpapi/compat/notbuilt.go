package compat

import (
	"net/http"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/contract"
)

// RegisterNotBuilt answers each operation of the existing loxilb that this build lacks with an
// explanation, so clients can tell it from an unknown path. It panics if the operation exists.
func RegisterNotBuilt(mux *http.ServeMux) {
	for _, o := range contract.AllOperations() {
		if o.State != contract.Unsupported {
			continue
		}
		mux.HandleFunc(o.Method+" "+rest.BaseURL+o.Path, func(w http.ResponseWriter, r *http.Request) {
			rest.Refuse(http.StatusNotImplemented, "%s %s: %s", r.Method, r.URL.Path, o.Note).Write(w)
		})
	}
}
