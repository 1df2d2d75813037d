package httpapi

import (
	"errors"
	"net/http"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// single is how a kind is asked about whose requests are about one object each, named by its name.
// B is the body of a request, T what the store keeps.
type single[B any, T interface {
	Normal() T
	Validate() error
}] struct {
	word  string // what the kind is called in sentences
	parse func(*B) (T, error)
	words func(field string) string // the contract's, of lb's fields; "": the same
}

// of is what a body describes, as it is stored.
func (s single[B, T]) of(body *B, p *rest.Problem) (object T, _ *rest.Problem) {
	if p != nil {
		return object, p
	}
	object, err := s.parse(body)
	if err == nil {
		object = object.Normal()
		err = object.Validate()
	}
	if err != nil {
		return object, s.problem(err)
	}
	return object, nil
}

// decode reads and checks the body of a request.
func (s single[B, T]) decode(data []byte) (T, *rest.Problem) { return s.of(rest.Unmarshal[B](data)) }

// read does the same with an object of a list.
func (s single[B, T]) read(spec []byte) (T, *rest.Problem) {
	return s.of(rest.UnmarshalStrict[B](spec))
}

// problem renames the field of an error into the contract's words.
func (s single[B, T]) problem(err error) *rest.Problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return rest.Refuse(http.StatusBadRequest, "%v", err)
	}
	if name := s.words(fe.Field); name != "" {
		fe = rest.Renamed(name, fe)
	}
	return rest.RefuseError(http.StatusBadRequest, fe)
}

// create answers a request that makes an object, or changes it.
func (s single[B, T]) create(a *API, w http.ResponseWriter, r *http.Request, t *store.Table[T]) {
	object, p := rest.DecodeLenient(a.reader, w, r, s.decode)
	if p != nil {
		p.Write(w)
		return
	}
	putOne(a, w, r, t, s.word, object)
}

// putOne makes an object, or changes it. That nothing changes is a conflict.
func putOne[T any](a *API, w http.ResponseWriter, r *http.Request, t *store.Table[T], word string, object T) {
	key := t.Key(object)
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, t, key); err != nil {
			return err
		}
		if err := t.Put(tx, object); err != nil {
			return err
		}
		if !tx.Changed() {
			return a.exists(word, t.ID(key))
		}
		return nil
	})
}

// deleteOne deletes an object, or says that it is gone.
func deleteOne[T any](a *API, w http.ResponseWriter, r *http.Request, t *store.Table[T], key string) {
	a.commit(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, t, key); err != nil {
			return err
		}
		var notes rest.Warnings
		defer func() { notes.Write(w) }()
		return deleteObject(tx, t.ID(key), &notes)
	})
}
