package kinds

import (
	"errors"

	"loxilb/internal/lb"
)

// API is how requests and answers have the objects of a kind. POST of Path creates or changes one,
// GET of Path/all returns the list, DELETE of Path and One deletes one. Their operations in
// openapi.yaml have the tag "registered", as no method answers them.
type API[T, B any] struct {
	Path   string              // "/config/policy"
	One    string              // what follows Path for one object, by its key: "/ident/{ident}"
	Read   func(*B) (T, error) // without its checks
	Show   func(*T) *B         // as POST takes it
	Fields map[string]string   // what B calls the fields of errors, where that differs
}

// About returns what the objects are called.
func (k Kind[T, B]) About() Words { return k.Words }

// Paths returns the paths of requests.
func (k Kind[T, B]) Paths() (all, one string) { return k.API.Path, k.API.One }

// NewBody returns a body to decode JSON into.
func (k Kind[T, B]) NewBody() any { return new(B) }

// Read returns the object that a body describes, if it is valid.
func (k Kind[T, B]) Read(body any) (any, error) {
	object, err := k.API.Read(body.(*B))
	if err == nil {
		err = k.Stored.Validate(object)
	}
	return object, k.Rename(err)
}

// Show returns the body that creates an object.
func (k Kind[T, B]) Show(object any) any {
	one := object.(T)
	return k.API.Show(&one)
}

// Rename puts the field of an error into the words of the API.
func (k Kind[T, B]) Rename(err error) error {
	var fe *lb.FieldError
	if !errors.As(err, &fe) || k.API.Fields[fe.Field] == "" {
		return err
	}
	renamed := *fe
	renamed.Field = k.API.Fields[fe.Field]
	return &renamed
}
