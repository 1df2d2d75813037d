package objects

import (
	"net/http"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/manifest"
)

// GetObjects answers with all that is wanted, as apply takes it.
func (a *API) GetObjects(w http.ResponseWriter, r *http.Request, params v1.GetObjectsParams) {
	only := map[string]bool{}
	for word := range strings.SplitSeq(params.Kind, ",") {
		if word == "" {
			continue
		}
		k := a.kindOf(word)
		if k == nil {
			rest.RefuseField(http.StatusBadRequest, "kind", word, "is no kind that this loxilb serves", "").Write(w)
			return
		}
		only[k.Name] = true
	}
	out := rest.NewList(w, "objects")
	now := a.Store.Snapshot()
	for i := range a.kinds {
		k := &a.kinds[i]
		if len(only) > 0 && !only[k.Name] {
			continue
		}
		for key := range k.Keys(now) {
			if k.Managed != nil && !params.Managed && k.Managed(now, key) {
				continue
			}
			one := objectDocument{APIVersion: manifest.APIVersion, Kind: k.Name, Spec: k.Show(now, key)}
			if k.Metadata != nil {
				one.Metadata = k.Metadata(now, key)
			}
			if r.Context().Err() != nil || !out.Item(one) {
				return
			}
		}
	}
	out.End()
}

// objectDocument is an object as apply takes it.
type objectDocument struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata,omitempty"`
	Spec       any            `json:"spec"`
}
