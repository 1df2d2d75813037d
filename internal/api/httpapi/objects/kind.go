package objects

import (
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/manifest"
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// A Kind is how requests for several kinds of objects (apply, plan, save) handle one kind.
type Kind struct {
	kinds.Words
	// Read decodes an object of a request, without reading the store. With keyOnly, only the
	// properties of its key are required.
	Read     func(o *v1.Object, keyOnly bool) (Wanted, *rest.Problem)
	Show     func(v store.View, key string) any // as a POST body; nil: the object does not exist
	Keys     func(v store.View) iter.Seq[string]
	Metadata func(v store.View, key string) map[string]any // that Read needs in addition to Show's. Optional.
	// Managed reports whether a controller looks after the object. Optional: nil means never.
	Managed func(v store.View, key string) bool
	// Live counts connections of a changing object, and connections that lose their service or
	// endpoint. Optional.
	Live func(before, after *store.Snapshot, key string) (connections, cut uint64)
	// Outside reads, once per request, the objects outside of the store that have keys of the list.
	// It returns a function that reports whether an object exists there already, and so has another
	// owner, and that refuses impossible objects. Optional. made are the interfaces that the
	// request creates.
	Outside func(made map[string]bool, list []any) func(w *Wanted) (there bool, p *rest.Problem)
	Kernel  bool // the kernel may refuse it
	// Check refuses objects that conflict with others, once all of a list are put. Optional.
	Check func(tx *store.Tx, w *Wanted) error
}

// Wanted is an object of a list.
type Wanted struct {
	Key   string
	Value any
	Put   func(tx *store.Tx) error // *rest.Problem, or an error of the store
}

// Register serves these kinds of object, in the order of kinds.All.
func (a *API) Register(list ...Kind) {
	a.kinds = append(a.kinds, list...)
	order := map[string]int{}
	for i, k := range kinds.All() {
		order[k.About().Name] = i
	}
	slices.SortFunc(a.kinds, func(x, y Kind) int { return order[x.Name] - order[y.Name] })
}

// KindOf returns the Kind of objects that have a table of their own. named converts validation
// errors to the API's property names; nil: they already are.
func KindOf[T any](words kinds.Words, t store.Table[T], read func(o *v1.Object, keyOnly bool) (T, *rest.Problem), show func(*T) any,
	named func(error) *rest.Problem) Kind {
	return Kind{
		Words: words,
		Read: func(o *v1.Object, keyOnly bool) (Wanted, *rest.Problem) {
			value, p := read(o, keyOnly)
			if p != nil {
				return Wanted{}, p
			}
			return Wanted{t.Key(value), value, func(tx *store.Tx) error {
				err := t.Put(tx, value)
				if fe := (*lb.FieldError)(nil); named != nil && errors.As(err, &fe) {
					return named(err)
				}
				return err
			}}, nil
		},
		Show: func(v store.View, key string) any {
			value, ok := t.Get(v, key)
			if !ok {
				return nil
			}
			return show(&value)
		},
		Keys: func(v store.View) iter.Seq[string] {
			return func(yield func(string) bool) {
				for value := range t.All(v) {
					if !yield(t.Key(value)) {
						return
					}
				}
			}
		},
	}
}

// Plain reads objects that the spec alone names.
func Plain[T any](read func(spec []byte) (T, *rest.Problem)) func(*v1.Object, bool) (T, *rest.Problem) {
	return func(o *v1.Object, _ bool) (T, *rest.Problem) { return read(o.Spec) }
}

// kindOf finds a Kind by its name or an alias.
func (a *API) kindOf(word string) *Kind {
	k, ok := manifest.Find(word)
	i := slices.IndexFunc(a.kinds, func(o Kind) bool { return o.Name == k.Name })
	if !ok || i < 0 {
		return nil
	}
	return &a.kinds[i]
}

// kindNames returns the names of all kinds, comma-separated.
func (a *API) kindNames() string {
	names := make([]string, len(a.kinds))
	for i := range a.kinds {
		names[i] = a.kinds[i].Document
	}
	return strings.Join(names, ", ")
}

// kindOfID returns the Kind that has this name in the store.
func (a *API) kindOfID(id store.ID) *Kind {
	i := slices.IndexFunc(a.kinds, func(o Kind) bool { return o.Name == id.Kind })
	if i < 0 {
		return nil
	}
	return &a.kinds[i]
}

// Spec reads an object from its spec.
func Spec[S, T any](parse func(*S) (T, error)) func(*v1.Object) (T, *rest.Problem) {
	return func(o *v1.Object) (value T, p *rest.Problem) {
		spec, p := rest.UnmarshalStrict[S](o.Spec)
		if p != nil {
			return value, p
		}
		value, err := parse(spec)
		if err != nil {
			return value, rest.BadRequest(err)
		}
		return value, nil
	}
}

// Number returns a number of the metadata.
func Number(o *v1.Object, name string) (string, *rest.Problem) {
	metadata, p := Metadata(o)
	if p != nil {
		return "", p
	}
	n, ok := metadata[name].(float64)
	if !ok || n != float64(int32(n)) {
		return "", rest.RefuseField(http.StatusBadRequest, "metadata."+name, "", "is missing or not a number", "")
	}
	return strconv.Itoa(int(n)), nil
}

// Metadata reads the metadata of an object of a list.
func Metadata(o *v1.Object) (metadata map[string]any, p *rest.Problem) {
	if len(o.Metadata) > 0 {
		if err := json.Unmarshal(o.Metadata, &metadata); err != nil {
			return nil, rest.RefuseField(http.StatusBadRequest, "metadata", "", "is not an object", "")
		}
	}
	return metadata, nil
}

// GetObjects replies with the whole configuration, in the form that apply accepts.
func (a *API) GetObjects(w http.ResponseWriter, r *http.Request, params v1.GetObjectsParams) {
	only := map[string]bool{}
	for word := range strings.SplitSeq(params.Kind, ",") {
		if word == "" {
			continue
		}
		k := a.kindOf(word)
		if k == nil {
			rest.RefuseField(http.StatusBadRequest, "kind", word, "is not a kind that this loxilb serves", a.kindNames()).Write(w)
			return
		}
		only[k.Document] = true
	}
	out := rest.NewList(w, "objects")
	now := a.Store.Snapshot()
	for i := range a.kinds {
		k := &a.kinds[i]
		if len(only) > 0 && !only[k.Document] {
			continue
		}
		for key := range k.Keys(now) {
			if k.Managed != nil && !params.Managed && k.Managed(now, key) {
				continue
			}
			one := objectDocument{APIVersion: manifest.APIVersion, Kind: k.Document, Spec: k.Show(now, key)}
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
