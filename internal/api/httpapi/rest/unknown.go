package rest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// A property that this version does not know may be a typing error, or a newer client's. Where it
// says something (anything but false, 0, "", null and what holds nothing else) the request is
// refused: a service that works in another way than it was asked to is worse than one that does
// not. Where it says nothing it is passed over: so a client that writes all properties that it
// knows may be newer than the server.

// unknownSaid finds the first property of a body that T does not have and that says something; "":
// there is none. The body has been decoded as a T before.
func unknownSaid[T any](data []byte) string {
	w := &unknownWalk{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	w.known(reflect.TypeFor[T]())
	return w.found
}

// unknownWalk goes through a body without keeping it.
type unknownWalk struct {
	dec   *json.Decoder
	found string
}

// known reads a value of a type that is known.
func (w *unknownWalk) known(t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) || t.Kind() != reflect.Struct && t.Kind() != reflect.Slice {
		w.says()
		return
	}
	token, err := w.dec.Token()
	if opened, ok := token.(json.Delim); !ok || err != nil || opened != '{' && opened != '[' {
		return // null
	}
	for w.dec.More() && err == nil {
		if t.Kind() == reflect.Slice {
			w.known(t.Elem())
			continue
		}
		if token, err = w.dec.Token(); err == nil {
			w.member(t, token.(string))
		}
	}
	_, _ = w.dec.Token()
}

// member reads the value of a property of an object of type t.
func (w *unknownWalk) member(t reflect.Type, name string) {
	for f := range t.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); strings.EqualFold(tag, name) {
			w.known(f.Type)
			return
		}
	}
	if w.says() && w.found == "" {
		w.found = name
	}
}

// says reads a value that nothing is known of, and tells whether it says something.
func (w *unknownWalk) says() (something bool) {
	token, err := w.dec.Token()
	if err != nil {
		return false
	}
	switch token := token.(type) {
	case json.Delim:
		for w.dec.More() {
			if token == '{' {
				_, _ = w.dec.Token() // the name
			}
			something = w.says() || something
		}
		_, _ = w.dec.Token()
	case bool:
		something = token
	case string:
		something = token != ""
	case json.Number:
		n, err := token.Float64()
		something = err != nil || n != 0
	}
	return something
}
