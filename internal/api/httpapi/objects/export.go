package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
)

// clusterComponent holds the roles of the node, which are exported for people to read.
const clusterComponent = "cluster"

// components returns the parts of an exported configuration that are kinds of object, by name.
func (a *API) components() map[string]*Kind {
	out := map[string]*Kind{}
	for i := range a.kinds {
		if k := &a.kinds[i]; k.Exported {
			out[strings.ToLower(k.Document)] = k
		}
	}
	return out
}

// ExportConfig replies with the configuration as a file.
func (a *API) ExportConfig(w http.ResponseWriter, _ *http.Request, params v1.ExportConfigParams) {
	components := a.components()
	all := append(slices.Sorted(maps.Keys(components)), clusterComponent)
	wanted := all
	if params.Components != "" {
		wanted = slices.Compact(slices.Sorted(strings.SplitSeq(params.Components, ",")))
	}
	for _, name := range wanted {
		if !slices.Contains(all, name) {
			rest.RefuseField(http.StatusBadRequest, "components", name, "is not known", strings.Join(all, ", ")).Write(w)
			return
		}
	}
	a.CompleteLists.Answer(w, func() any {
		now, at := a.Store.Snapshot(), time.Now().UTC()
		out := map[string]any{"timestamp": at.Format(time.RFC3339), "version": a.Version}
		for _, name := range wanted {
			if name == clusterComponent {
				out[name] = a.Roles()
			} else {
				out[name] = components[name].export(now)
			}
		}
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": "loxilb-config-" + at.Format("20060102-150405") + ".json"}))
		return out
	})
}

// export returns all objects of a kind, except those of a controller.
func (k *Kind) export(v store.View) []any {
	list := []any{}
	for key := range k.Keys(v) {
		if k.Managed == nil || !k.Managed(v, key) {
			list = append(list, k.Show(v, key))
		}
	}
	return list
}

// ImportConfig replaces the configuration by an exported file.
func (a *API) ImportConfig(w http.ResponseWriter, r *http.Request, _ v1.ImportConfigParams) {
	req, p := a.imported(w, r)
	if p != nil {
		p.Write(w)
		return
	}
	a.transact(w, r, transaction{edit: req.edit, force: Forced(r), doing: req.doing, named: req.named})
}

// imported reads the file of a request.
func (a *API) imported(w http.ResponseWriter, r *http.Request) (*application, *rest.Problem) {
	turn, p := a.Reader.AcquireBody(r.Context())
	if p != nil {
		return nil, p
	}
	defer turn.Done()
	file, p := formFile(w, r, turn, "configuration")
	if p != nil {
		return nil, p
	}
	outline := rest.OutlineOf(file, rest.PartSize)
	if p := outline.TooMany(); p != nil {
		return nil, p
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(file, &parts); err != nil {
		return nil, rest.Refuse(http.StatusBadRequest, "configuration is not a JSON object: %v", err)
	}
	var body v1.ApplyRequest
	var places []string // of objects in the file
	components := a.components()
	names := slices.Sorted(maps.Keys(components))
	for _, name := range names {
		part, there := parts[name]
		if !there || string(part) == "null" {
			continue
		}
		var specs []json.RawMessage
		if err := json.Unmarshal(part, &specs); err != nil {
			return nil, rest.RefuseField(http.StatusBadRequest, name, "", "is not a list", "a list of objects as POST takes them")
		}
		kind := components[name].Document
		for i, spec := range specs {
			places = append(places, fmt.Sprintf("%s[%d]", name, i))
			body.Objects = append(body.Objects, v1.Object{Kind: kind, Spec: spec})
		}
		body.Prune = append(body.Prune, kind)
	}
	if len(body.Prune) == 0 {
		return nil, rest.RefuseField(http.StatusBadRequest, "configuration", "", "has no component", strings.Join(names, ", "))
	}
	body.Doing = "import"
	req, p := a.application(&body)
	if p != nil && len(p.Body.Errors) > 0 {
		first := p.Body.Errors[0]
		p.Body.Message = fmt.Sprintf("nothing was changed: %s: %s", places[first.Index], first.Message)
		if n := len(p.Body.Errors); n > 1 {
			p.Body.Message += fmt.Sprintf(" (%d things are wrong in all)", n)
		}
	}
	return req, p
}

// formFile returns a field of a form (RFC 7578).
func formFile(w http.ResponseWriter, r *http.Request, turn *rest.BodyTurn, name string) ([]byte, *rest.Problem) {
	ct := r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(ct)
	if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
		return nil, rest.RefuseField(http.StatusUnsupportedMediaType, "Content-Type", ct, "is not a form", "multipart/form-data with a file in the field "+name)
	}
	data, p := rest.ReadAll(w, r, turn)
	if p != nil {
		return nil, p
	}
	form := multipart.NewReader(bytes.NewReader(data), params["boundary"])
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, rest.RefuseField(http.StatusBadRequest, name, "", "is missing", "a file of that name in the form")
		}
		if err == nil && part.FormName() != name {
			continue
		}
		var file []byte
		if err == nil {
			file, err = io.ReadAll(part)
		}
		if err != nil {
			return nil, rest.Refuse(http.StatusBadRequest, "the form is broken: %v", err)
		}
		return file, nil
	}
}
