package kinds

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"

	"loxilb/internal/lb"
)

// API is the form of a kind's objects in requests and answers. POST of Path creates or changes one,
// GET of Path/all returns the list, DELETE of Path and One deletes one. Their operations in
// openapi.yaml have the tag "registered", as no method answers them.
type API[T, B any] struct {
	Path       string              // "/config/policy"
	ObjectPath string              // suffix of Path for one object: "/ident/{ident}", a part of the key each
	OnlyKey    string              // the key of the only object, if ObjectPath is empty
	Read       func(*B) (T, error) // without validating the object
	Show       func(*T) *B         // as a POST body
	Fields     map[string]string   // B's names of fields in errors, if they differ

	// Merge merges the object of a posted body into the stored one; nil: the body replaces it.
	Merge func(stored, posted T, body *B) T
	// Key returns a deleted object's key from the path and parameters; nil: the path is the key.
	Key func(name string, parameters url.Values) (string, error)
	// Peer returns the address of another node that an object contains, and its field; nil: objects
	// contain none.
	Peer func(object T) (field string, peer netip.Addr)
	// KeepReason returns why a DELETE with these parameters must keep an object; nil: always "".
	KeepReason func(object T, parameters url.Values) string
}

// neighborKey is the Key of paths that begin with a neighbor's address in any form, or with its
// interface: stored keys have the shortest form.
func neighborKey(name string, _ url.Values) (string, error) {
	first, rest, more := strings.Cut(name, "/")
	if a, err := netip.ParseAddr(first); err == nil {
		first = a.String()
	}
	if more {
		first += "/" + rest
	}
	return first, nil
}

// About returns the names of the kind.
func (k *Kind[T, B]) About() Words { return k.Words }

// Paths returns the paths of requests.
func (k *Kind[T, B]) Paths() (all, one string) { return k.API.Path, k.API.ObjectPath }

// OnlyKey returns the key of the only object; "": there may be many.
func (k *Kind[T, B]) OnlyKey() string { return k.API.OnlyKey }

// NewBody returns a body to decode JSON into.
func (k *Kind[T, B]) NewBody() any { return new(B) }

// Read returns the object that a body describes, if it is valid.
func (k *Kind[T, B]) Read(body any) (any, error) {
	object, err := k.API.Read(body.(*B))
	if err == nil {
		err = k.Stored.Validate(object)
	}
	return object, k.Rename(err)
}

// Show returns the body that creates an object.
func (k *Kind[T, B]) Show(object any) any {
	one := object.(T)
	return k.API.Show(&one)
}

// Merge merges the object of a posted body into a stored one.
func (k *Kind[T, B]) Merge(stored, posted, body any) any {
	if k.API.Merge == nil {
		return posted
	}
	return k.API.Merge(stored.(T), posted.(T), body.(*B))
}

// DeletedKey returns the key of the object that a DELETE names by its path and parameters, or a
// *lb.FieldError with the path's names.
func (k *Kind[T, B]) DeletedKey(name string, parameters url.Values) (string, error) {
	if k.API.Key == nil {
		return name, nil
	}
	return k.API.Key(name, parameters)
}

// Peer returns the address of another node that an object names, and its field; invalid: none.
func (k *Kind[T, B]) Peer(object any) (field string, peer netip.Addr) {
	if k.API.Peer == nil {
		return "", peer
	}
	return k.API.Peer(object.(T))
}

// KeepReason returns why a DELETE with these parameters keeps an object.
func (k *Kind[T, B]) KeepReason(object any, parameters url.Values) string {
	if k.API.KeepReason == nil {
		return ""
	}
	return k.API.KeepReason(object.(T), parameters)
}

// Rename converts the field of an error to the API's name.
func (k *Kind[T, B]) Rename(err error) error {
	var fe *lb.FieldError
	if !errors.As(err, &fe) || k.API.Fields[fe.Field] == "" {
		return err
	}
	renamed := *fe
	renamed.Field = k.API.Fields[fe.Field]
	return &renamed
}
