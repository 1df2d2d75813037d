package httpapi

import (
	"errors"
	"iter"
	"slices"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/manifest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// objectKind is how requests about several kinds of object (apply, plan, save) deal with one of
// them.
type objectKind struct {
	manifest.Kind
	store string // what the store calls the kind
	// read makes something of what a request says, without a look at the store. With keyOnly no
	// more is needed than what names it.
	read     func(o *v1.Object, keyOnly bool) (wanted, *rest.Problem)
	show     func(v store.View, key string) any // as POST takes it; nil: there is none
	keys     func(v store.View) iter.Seq[string]
	metadata func(v store.View, key string) map[string]any // that read needs beside what show says. Optional: nothing.
	// managed tells whether a controller looks after the object. Optional: it does not.
	managed func(v store.View, key string) bool
	// live counts connections of an object that changes, and those that lose their service or
	// endpoint by it. Optional: it has none.
	live func(before, after *store.Snapshot, key string) (connections, cut uint64)
	// outside looks, once a request, at what there is besides the store by the keys of the list's
	// objects. It returns a function that reports whether an object is there already, so it is not
	// ours to keep, and that refuses what cannot be. Optional. made are the interfaces that there
	// will be.
	outside func(made map[string]bool, list []any) func(w *wanted) (there bool, p *rest.Problem)
	kernel  bool // the kernel has the last word on it
	// check refuses what cannot be beside the other objects, once all of a list are put. Optional:
	// nothing.
	check func(tx *store.Tx, w *wanted) error
	// warn says what is dangerous about a change. Optional.
	warn func(before, after *store.Snapshot, key string) string
}

// wanted is an object of a list.
type wanted struct {
	key   string
	value any
	put   func(tx *store.Tx) error // *problem, or an error of the store
}

// objectKinds is the table of kinds that are served, in the order of manifest.Kinds. A new kind of
// object gets one line: what it is called (manifest), its table in the store, how it is read and
// how it is shown.
func (a *API) objectKinds() []objectKind {
	list := []objectKind{
		a.serviceObjects(),
		objectsOf(manifest.Endpoint, a.Store.Endpoints.Table, plain(a.readEndpoint), a.codec.showEndpoint, endpointProblem),
		a.drainObjects(),
		objectsOf(manifest.Policy, a.Store.Policers.Table, plain(policies().read), showPolicy, policies().problem),
		objectsOf(manifest.Mirror, a.Store.Mirrors.Table, plain(mirrors().read), showMirror, mirrors().problem),
		objectsOf(manifest.Firewall, a.Store.Rules.Table, plain(readRule), showRule, func(err error) *rest.Problem { return ruleProblem("", err) }),
	}
	list = append(list, a.networkObjects()...)
	order := map[string]int{}
	for i, k := range manifest.Kinds() {
		order[k.Name] = i
	}
	slices.SortFunc(list, func(x, y objectKind) int { return order[x.Name] - order[y.Name] })
	return list
}

// objectsOf is the row of a kind whose objects have a table of their own. named puts errors of its
// validation into the API's words; nil: they are.
func objectsOf[T any](name string, t *store.Table[T], read func(o *v1.Object, keyOnly bool) (T, *rest.Problem), show func(*T) any,
	named func(error) *rest.Problem) objectKind {
	kind, _ := manifest.Find(name)
	return objectKind{
		Kind:  kind,
		store: t.ID("").Kind,
		read: func(o *v1.Object, keyOnly bool) (wanted, *rest.Problem) {
			value, p := read(o, keyOnly)
			if p != nil {
				return wanted{}, p
			}
			return wanted{t.Key(value), value, func(tx *store.Tx) error {
				err := t.Put(tx, value)
				if fe := (*lb.FieldError)(nil); named != nil && errors.As(err, &fe) {
					return named(err)
				}
				return err
			}}, nil
		},
		show: func(v store.View, key string) any {
			value, ok := t.Get(v, key)
			if !ok {
				return nil
			}
			return show(&value)
		},
		keys: func(v store.View) iter.Seq[string] {
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

// plain reads objects that the spec alone names.
func plain[T any](read func(spec []byte) (T, *rest.Problem)) func(*v1.Object, bool) (T, *rest.Problem) {
	return func(o *v1.Object, _ bool) (T, *rest.Problem) { return read(o.Spec) }
}

// kindOf finds the row of a kind by its name or an alias.
func (a *API) kindOf(word string) *objectKind {
	k, ok := manifest.Find(word)
	i := slices.IndexFunc(a.kinds, func(o objectKind) bool { return o.Name == k.Name })
	if !ok || i < 0 {
		return nil
	}
	return &a.kinds[i]
}

// kindOfID is the row of the kind that the store calls so.
func (a *API) kindOfID(id store.ID) *objectKind {
	i := slices.IndexFunc(a.kinds, func(o objectKind) bool { return o.store == id.Kind })
	if i < 0 {
		return nil
	}
	return &a.kinds[i]
}
