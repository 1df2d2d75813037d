package manifest

import "encoding/json"

// value is a part of a document, of YAML or JSON.
type value interface {
	place() (line, column int)
	isNull() bool
	isObject() bool
	text() string                      // of a scalar, as written
	names() []string                   // of members
	member(name string) (value, bool)  // in any case
	elements() (list []value, ok bool) // ok: it is a list
	json(r *reader) json.RawMessage    // a value that JSON cannot represent is recorded as an error
}
