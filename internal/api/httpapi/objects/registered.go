package objects

import (
	"cmp"
	"iter"
	"net/http"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// registered handles the objects of a kind whose registration describes its requests.
type registered struct {
	desired.Objects
	api   *API
	count func() func(object, body any) // returns a function that adds counters to an answer of GET; nil: no counters
}

// Count makes GET of a registered kind add counters to the body of each object.
func (a *API) Count(kind string, add func(object, body any)) {
	a.CountAll(kind, func() func(object, body any) { return add })
}

// CountAll is Count for counters that are read once for each GET.
func (a *API) CountAll(kind string, read func() func(object, body any)) {
	a.registered[kind].count = read
}

// registerAll serves the kinds whose registrations describe their requests.
func (a *API) registerAll() {
	a.registered = map[string]*registered{}
	for _, o := range a.Store.Objects() {
		if path, _ := o.Paths(); path != "" {
			r := &registered{Objects: o, api: a}
			a.registered[o.About().Name] = r
			a.Register(r.kind())
		}
	}
}

// HandleRegistered registers the requests about registered kinds.
func (a *API) HandleRegistered(mux *http.ServeMux) {
	for _, r := range a.registered {
		path, one := r.Paths()
		mux.HandleFunc("POST "+rest.BaseURL+path, r.create)
		mux.HandleFunc("GET "+rest.BaseURL+path+"/all", r.list)
		mux.HandleFunc("DELETE "+rest.BaseURL+path+one, func(w http.ResponseWriter, req *http.Request) {
			key, err := r.DeletedKey(keyIn(req, one), req.URL.Query())
			if err != nil {
				rest.RefuseError(http.StatusBadRequest, err).Write(w)
				return
			}
			r.remove(w, req, cmp.Or(r.OnlyKey(), key))
		})
	}
}

// keyIn returns the key in the path of a request: the values of its parameters, with slashes
// between.
func keyIn(r *http.Request, path string) string {
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		if name, is := strings.CutPrefix(part, "{"); is {
			parts = append(parts, r.PathValue(strings.TrimSuffix(name, "}")))
		}
	}
	return strings.Join(parts, "/")
}

// kind returns how requests about several kinds handle this one.
func (r *registered) kind() Kind {
	return Kind{
		Words: r.About(),
		Read: func(o *v1.Object, _ bool) (Wanted, *rest.Problem) {
			body := r.NewBody()
			if p := rest.UnmarshalSpec(o.Spec, body); p != nil {
				return Wanted{}, p
			}
			object, err := r.Read(body)
			if err != nil {
				return Wanted{}, rest.BadRequest(err)
			}
			return Wanted{r.Key(object), object, func(tx *store.Tx) error { return r.put(tx, object) }}, nil
		},
		Show: func(v store.View, key string) any {
			if object := r.Find(v, key); object != nil {
				return r.Show(object)
			}
			return nil
		},
		Keys: func(v store.View) iter.Seq[string] {
			return func(yield func(string) bool) {
				for object := range r.All(v) {
					if !yield(r.Key(object)) {
						return
					}
				}
			}
		},
	}
}

// put creates or changes an object of a kind that this daemon serves. Putting an unchanged object
// always succeeds, so a saved configuration can be applied.
func (r *registered) put(tx *store.Tx, object any) error {
	key := r.Key(object)
	before, _ := r.Meta(tx, key)
	if err := r.Put(tx, object); err != nil {
		return err
	}
	if after, _ := r.Meta(tx, key); after == before {
		return nil
	}
	if why := r.api.off(r.About().Name); why != "" {
		return rest.Refuse(http.StatusNotImplemented, "%s", why)
	}
	return r.notOwn(object)
}

// notOwn refuses an object whose peer is this node, for example from a file of the other node.
func (r *registered) notOwn(object any) error {
	field, peer := r.Peer(object)
	if r.api.Own == nil || !peer.IsValid() || !r.api.Own(peer) {
		return nil
	}
	err := lb.NewFieldError(field, peer.String(), "is an address of this node", "the address of another node")
	return rest.BadRequest(r.Rename(err))
}

// off returns why objects of a kind cannot be created or changed; "": they can.
func (a *API) off(kind string) string {
	if a.Off == nil {
		return ""
	}
	return a.Off(kind)
}

// CreateOf handles POST of a registered kind. complete adds to the body what the path says.
func (a *API) CreateOf(kind string, w http.ResponseWriter, r *http.Request, complete func(body any) error) {
	a.registered[kind].createFrom(w, r, complete)
}

// create creates or changes an object. A request that changes nothing is a conflict.
func (r *registered) create(w http.ResponseWriter, req *http.Request) {
	r.createFrom(w, req, func(any) error { return nil })
}

func (r *registered) createFrom(w http.ResponseWriter, req *http.Request, complete func(body any) error) {
	var body any
	object, p := rest.DecodeLenient(r.api.Reader, w, req, func(data []byte) (_ any, p *rest.Problem) {
		body, p = rest.UnmarshalNew(data, r.NewBody)
		if p != nil {
			return nil, p
		}
		var object any
		err := complete(body)
		if err == nil {
			object, err = r.Read(body)
		}
		if err != nil {
			return nil, rest.BadRequest(err)
		}
		return object, nil
	})
	if p != nil {
		p.Write(w)
		return
	}
	key := r.Key(object)
	r.api.Commit(w, req, true, func(tx *store.Tx, pre *Precondition) error {
		if err := pre.Check(tx, r, key); err != nil {
			return err
		}
		wanted := object
		if stored := r.Find(tx, key); stored != nil {
			wanted = r.Merge(stored, object, body)
		}
		if err := r.put(tx, wanted); err != nil {
			return err
		}
		if !tx.Changed() {
			return r.api.Exists(r.About().Name, r.ID(key))
		}
		return nil
	})
}

// list replies with all objects.
func (r *registered) list(w http.ResponseWriter, req *http.Request) {
	add := func(object, body any) {}
	if r.count != nil {
		add = r.count()
	}
	out := rest.NewList(w, r.About().List)
	for object := range r.All(r.api.Store.Snapshot()) {
		body := r.Show(object)
		add(object, body)
		if req.Context().Err() != nil || !out.Item(body) {
			return
		}
	}
	out.End()
}

// remove deletes an object, or warns that it does not exist.
func (r *registered) remove(w http.ResponseWriter, req *http.Request, key string) {
	r.api.Commit(w, req, true, func(tx *store.Tx, pre *Precondition) error {
		if err := pre.Check(tx, r, key); err != nil {
			return err
		}
		var notes rest.Warnings
		defer func() { notes.Write(w) }()
		if stored := r.Find(tx, key); stored != nil {
			if why := r.KeepReason(stored, req.URL.Query()); why != "" {
				notes.Add("%s %s is not deleted: %s", r.About().Name, key, why)
				return nil
			}
		}
		return DeleteObject(tx, r.ID(key), &notes)
	})
}

// ReadBoot returns the reader of boot files' objects of a registered kind.
func (a *API) ReadBoot(kind string) func(data []byte) (Edit, *rest.Problem) {
	r := a.registered[kind]
	return func(data []byte) (Edit, *rest.Problem) {
		body, p := rest.UnmarshalNew(data, r.NewBody)
		if p != nil {
			return nil, p
		}
		object, err := r.Read(body)
		if err != nil {
			return nil, rest.BadRequest(err)
		}
		return func(tx *store.Tx, _ *rest.Warnings) error { return r.put(tx, object) }, nil
	}
}
