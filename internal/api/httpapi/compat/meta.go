package compat

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"loxilb/api"
	"loxilb/internal/api/httpapi/rest"
)

// GetMeta replies with the method and the fields of each request that changes something, by path.
func (a *API) GetMeta(w http.ResponseWriter, _ *http.Request) {
	out, err := a.meta()
	if err != nil {
		rest.Refuse(http.StatusInternalServerError, "the description of the API can't be read: %v", err).Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // fails only if the client has disconnected
}

// metaOfRequests returns the answer of GetMeta. Parsing the description takes tens of milliseconds
// of CPU.
func metaOfRequests() ([]byte, error) {
	var d description
	if err := yaml.Unmarshal(api.Spec(), &d); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for path, methods := range d.Paths {
		for _, method := range [...]string{"post", "put"} {
			if op, there := methods[method]; there {
				out[path] = map[string]any{"method": strings.ToUpper(method), "fields": d.fieldsOf(op)}
			}
		}
	}
	return json.Marshal(out)
}

// description is the part of api/openapi.yaml that GetMeta needs.
type description struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	Parameters  []parameter
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
}

type parameter struct {
	Name     string
	Required bool
	Schema   schema
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        string
	Format      string
	Description string
	Enum        []any
	Required    []string
	Properties  map[string]schema
	Items       *schema
	AllOf       []schema
}

func (d *description) fieldsOf(op operation) map[string]any {
	fields := map[string]any{}
	for _, p := range op.Parameters {
		if p.Name != "" { // shared components are parameters of paths that delete
			fields[p.Name] = d.field(p.Schema, p.Required, 0)
		}
	}
	for _, content := range op.RequestBody.Content {
		body := d.resolve(content.Schema)
		for name, s := range body.Properties {
			fields[name] = d.field(s, slices.Contains(body.Required, name), 0)
		}
	}
	return fields
}

// maxDepth ends recursive references.
const maxDepth = 8

// field returns an object's fields, or of anything else its type.
func (d *description) field(s schema, required bool, depth int) map[string]any {
	s = d.resolve(s)
	if len(s.Properties) > 0 && depth < maxDepth {
		out := map[string]any{}
		for name, p := range s.Properties {
			out[name] = d.field(p, slices.Contains(s.Required, name), depth+1)
		}
		return out
	}
	out := map[string]any{"type": s.Type, "required": required}
	for name, text := range map[string]string{"format": s.Format, "description": strings.TrimSpace(s.Description)} {
		if text != "" {
			out[name] = text
		}
	}
	if len(s.Enum) > 0 {
		out["enum"] = s.Enum
	}
	if s.Items != nil && depth < maxDepth {
		out["items"] = d.field(*s.Items, false, depth+1)
	}
	return out
}

// resolve follows references to schemas.
func (d *description) resolve(s schema) schema {
	for range maxDepth {
		switch name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); {
		case ok:
			s = d.Components.Schemas[name]
		case len(s.AllOf) > 0:
			s = s.AllOf[0]
		}
	}
	return s
}
