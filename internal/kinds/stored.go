package kinds

import (
	"bytes"
	"encoding/json"
)

// asJSON stores objects as JSON. It refuses unknown members, which a newer build has written.
func asJSON[T comparable](key func(T) string, validate func(T) error) Stored[T] {
	s := asJSONOf(key, validate, nil)
	s.Equal = func(a, b T) bool { return a == b }
	return s
}

// asJSONOf is asJSON for objects with lists: two objects are equal if their JSON is.
func asJSONOf[T any](key func(T) string, validate func(T) error, clone func(T) T) Stored[T] {
	return Stored[T]{
		Key:      key,
		Validate: validate,
		Equal: func(a, b T) bool {
			one, err1 := json.Marshal(a)
			other, err2 := json.Marshal(b)
			return err1 == nil && err2 == nil && bytes.Equal(one, other)
		},
		Clone:  clone,
		Format: 1,
		Encode: func(o T) (int, []byte, error) { b, err := json.Marshal(o); return 1, b, err },
		Decode: func(_ int, object []byte) (o T, err error) {
			err = decodeStrict(object, &o)
			return o, err
		},
	}
}

// decodeStrict decodes JSON into a struct, and refuses unknown members.
func decodeStrict(object []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
