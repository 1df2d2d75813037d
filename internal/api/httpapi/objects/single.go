package objects

import (
	"errors"
	"net/http"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// Single is how a kind is asked about whose requests are about one object each, named by its name.
// B is the body of a request, T what the store keeps.
type Single[B any, T interface {
	Normal() T
	Validate() error
}] struct {
	Word  string // what the kind is called in sentences
	Parse func(*B) (T, error)
	Words func(field string) string // the contract's, of lb's fields; "": the same
}

// of returns what a body describes, as it is stored.
func (s Single[B, T]) of(body *B, p *rest.Problem) (object T, _ *rest.Problem) {
	if p != nil {
		return object, p
	}
	object, err := s.Parse(body)
	if err == nil {
		object = object.Normal()
		err = object.Validate()
	}
	if err != nil {
		return object, s.Problem(err)
	}
	return object, nil
}

// decode reads and checks the body of a request.
func (s Single[B, T]) decode(data []byte) (T, *rest.Problem) { return s.of(rest.Unmarshal[B](data)) }

// Read does the same with an object of a list.
func (s Single[B, T]) Read(spec []byte) (T, *rest.Problem) {
	return s.of(rest.UnmarshalStrict[B](spec))
}

// Problem renames the field of an error into the contract's words.
func (s Single[B, T]) Problem(err error) *rest.Problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return rest.Refuse(http.StatusBadRequest, "%v", err)
	}
	if name := s.Words(fe.Field); name != "" {
		fe = rest.Renamed(name, fe)
	}
	return rest.RefuseError(http.StatusBadRequest, fe)
}

// Create answers a request that makes an object, or changes it.
func (s Single[B, T]) Create(a *API, w http.ResponseWriter, r *http.Request, t *store.Table[T]) {
	object, p := rest.DecodeLenient(a.Reader, w, r, s.decode)
	if p != nil {
		p.Write(w)
		return
	}
	PutOne(a, w, r, t, s.Word, object)
}

// PutOne makes an object, or changes it. That nothing changes is a conflict.
func PutOne[T any](a *API, w http.ResponseWriter, r *http.Request, t *store.Table[T], word string, object T) {
	key := t.Key(object)
	a.Commit(w, r, true, func(tx *store.Tx, pre *Precondition) error {
		if err := pre.Check(tx, t, key); err != nil {
			return err
		}
		if err := t.Put(tx, object); err != nil {
			return err
		}
		if !tx.Changed() {
			return a.Exists(word, t.ID(key))
		}
		return nil
	})
}

// DeleteOne deletes an object, or says that it is gone.
func DeleteOne[T any](a *API, w http.ResponseWriter, r *http.Request, t *store.Table[T], key string) {
	a.Commit(w, r, true, func(tx *store.Tx, pre *Precondition) error {
		if err := pre.Check(tx, t, key); err != nil {
			return err
		}
		var notes rest.Warnings
		defer func() { notes.Write(w) }()
		return DeleteObject(tx, t.ID(key), &notes)
	})
}
