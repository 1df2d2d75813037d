package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	v1 "loxilb/api/v1"
)

// strictly reads an object of a list. Where decodeObject says at which place of the body a value is wrong, this says by what path it is
// found, as the client may have made the body of something else. Properties that are not known are all named.
func strictly[T any](spec []byte) (*T, *problem) {
	object := new(T)
	if len(spec) == 0 || spec[0] != '{' {
		return nil, refuseField(http.StatusBadRequest, "spec", "", "is missing", "an object: what POST takes")
	}
	dec := json.NewDecoder(bytes.NewReader(spec))
	dec.DisallowUnknownFields()
	err := dec.Decode(object)
	if err == nil {
		return object, nil
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		path := pathAt(spec, int(kind.Offset))
		return nil, refuseField(http.StatusBadRequest, path, kind.Value, "is of the wrong type", kindName(kind))
	}
	names := unknownIn(spec, reflect.TypeFor[T](), "")
	if len(names) == 0 {
		return nil, decodeProblem(spec, err)
	}
	p := refuse(http.StatusBadRequest, "there is no property %q", names[0])
	p.body.Field, p.body.Reason = names[0], "is not a property of the API"
	for _, name := range names {
		p.body.Errors = append(p.body.Errors, v1.ObjectError{Field: name, Message: fmt.Sprintf("there is no property %q", name)})
	}
	return nil, p
}

// jsonParts yields what is in an object (by name) or in a list (by index), and where it begins.
func jsonParts(data []byte, yield func(path string, start int, part []byte)) {
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	delim, _ := open.(json.Delim)
	for i := 0; err == nil && delim != 0 && d.More(); i++ {
		path := fmt.Sprintf("[%d]", i)
		if delim == '{' {
			token, _ := d.Token() // the whole was read before
			name, _ := token.(string)
			path = "." + name
		}
		var part json.RawMessage
		if err = d.Decode(&part); err == nil {
			yield(path, int(d.InputOffset())-len(part), part)
		}
	}
}

// pathAt is the path of the value that ends at an offset, or begins just before it.
func pathAt(data []byte, offset int) (path string) {
	jsonParts(data, func(name string, start int, part []byte) {
		if start < offset && offset <= start+len(part) {
			path = name + joined(pathAt(part, offset-start))
		}
	})
	return strings.TrimPrefix(path, ".")
}

// joined is a path behind another one.
func joined(path string) string {
	if path == "" || path[0] == '[' {
		return path
	}
	return "." + path
}

// unknownIn lists what a type has no member for.
func unknownIn(data []byte, t reflect.Type, at string) (names []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	jsonParts(data, func(path string, _ int, part []byte) {
		switch {
		case t.Kind() == reflect.Slice && path[0] == '[':
			names = append(names, unknownIn(part, t.Elem(), at+path)...)
		case t.Kind() == reflect.Struct && path[0] == '.':
			f, ok := memberOf(t, path[1:])
			if ok {
				names = append(names, unknownIn(part, f, strings.TrimPrefix(at+path, "."))...)
			} else {
				names = append(names, strings.TrimPrefix(at+path, "."))
			}
		}
	})
	return names
}

func memberOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); strings.EqualFold(tag, name) {
			return f.Type, true
		}
	}
	return nil, false
}
