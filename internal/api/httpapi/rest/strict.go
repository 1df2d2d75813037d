package rest

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

// UnmarshalStrict decodes an object of a list. Its errors name paths instead of positions in the
// body, which the client may have generated from another file. It names all unknown properties.
func UnmarshalStrict[T any](spec []byte) (*T, *Problem) {
	object := new(T)
	if p := UnmarshalSpec(spec, object); p != nil {
		return nil, p
	}
	return object, nil
}

// UnmarshalSpec is UnmarshalStrict into an object.
func UnmarshalSpec(spec []byte, object any) *Problem {
	if len(spec) == 0 || spec[0] != '{' {
		return RefuseField(http.StatusBadRequest, "spec", "", "is missing", "an object: what POST takes")
	}
	dec := json.NewDecoder(bytes.NewReader(spec))
	dec.DisallowUnknownFields()
	err := dec.Decode(object)
	if err == nil {
		return nil
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		path := pathAt(spec, int(kind.Offset))
		return RefuseField(http.StatusBadRequest, path, kind.Value, "is of the wrong type", kindName(kind))
	}
	names := unknownIn(spec, reflect.TypeOf(object).Elem(), "", maxNames)
	if len(names) == 0 {
		return DecodeProblem(spec, err)
	}
	p := Refuse(http.StatusBadRequest, "unknown property %q", names[0])
	p.Body.Field, p.Body.Reason = names[0], "is not a property of the API"
	for _, name := range names {
		p.Body.Errors = append(p.Body.Errors, v1.ObjectError{Field: name, Message: fmt.Sprintf("unknown property %q", name)})
	}
	return p
}

// maxNames bounds the unknown properties named for an object.
const maxNames = 100

// jsonParts yields the members of an object (by name) or a list (by index), and their offsets,
// until yield returns false. The data is valid JSON. It copies nothing, since data may be large and
// deep: json.Decoder would copy each part. encoding/json/jsontext does not copy, but Go 1.26 has it
// only with GOEXPERIMENT=jsonv2, which also replaces encoding/json.
func jsonParts(data []byte, yield func(path string, start int, part []byte) bool) {
	at := skipSpace(data, 0)
	if at == len(data) || data[at] != '{' && data[at] != '[' {
		return
	}
	object := data[at] == '{'
	at = skipSpace(data, at+1)
	for i := 0; at < len(data) && data[at] != '}' && data[at] != ']'; i++ {
		path := fmt.Sprintf("[%d]", i)
		if object {
			end := min(endOfString(data, at)+1, len(data))
			path = "." + nameOf(data[at:end])
			at = skipSpace(data, skipSpace(data, end)+1) // after the colon
		}
		end := endOfValue(data, at)
		if !yield(path, at, data[at:end]) {
			return
		}
		if at = skipSpace(data, end); at < len(data) && data[at] == ',' {
			at = skipSpace(data, at+1)
		}
	}
}

// nameOf returns a name of a property without its quotes, or the beginning of a long one.
func nameOf(quoted []byte) (name string) {
	if len(quoted) > MaxQuoted {
		return strings.ToValidUTF8(string(quoted[1:MaxQuoted]), "") + "..."
	}
	if json.Unmarshal(quoted, &name) != nil {
		return string(quoted)
	}
	return name
}

func skipSpace(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n') {
		at++
	}
	return min(at, len(data))
}

// endOfValue returns the end of the value that begins at a position.
func endOfValue(data []byte, at int) int {
	for depth := 0; at < len(data); at++ {
		switch data[at] {
		case '"':
			at = endOfString(data, at)
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ' ', '\t', '\r', '\n', ':':
			continue
		default:
			for at+1 < len(data) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(data[at+1])) {
				at++
			}
		}
		if depth == 0 {
			return min(at+1, len(data))
		}
	}
	return len(data)
}

// pathAt returns the path of the value that ends at an offset, or begins just before it.
func pathAt(data []byte, offset int) (path string) {
	jsonParts(data, func(name string, start int, part []byte) bool {
		found := start < offset && offset <= start+len(part)
		if found {
			path = name + joined(pathAt(part, offset-start))
		}
		return !found
	})
	return strings.TrimPrefix(path, ".")
}

// joined returns a path as it is appended to another one.
func joined(path string) string {
	if path == "" || path[0] == '[' {
		return path
	}
	return "." + path
}

// unknownIn lists the properties that a type lacks, up to a limit.
func unknownIn(data []byte, t reflect.Type, at string, most int) (names []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	jsonParts(data, func(path string, _ int, part []byte) bool {
		switch {
		case t.Kind() == reflect.Slice && path[0] == '[':
			names = append(names, unknownIn(part, t.Elem(), at+path, most-len(names))...)
		case t.Kind() == reflect.Struct && path[0] == '.':
			f, ok := MemberOf(t, path[1:])
			if ok {
				names = append(names, unknownIn(part, f, strings.TrimPrefix(at+path, "."), most-len(names))...)
			} else {
				names = append(names, strings.TrimPrefix(at+path, "."))
			}
		}
		return len(names) < most
	})
	return names
}

// MemberOf returns the type of the member of t with a name in JSON.
func MemberOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); strings.EqualFold(tag, name) {
			return f.Type, true
		}
	}
	return nil, false
}
