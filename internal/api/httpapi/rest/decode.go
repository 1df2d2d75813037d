package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/manifest"
)

// Unmarshal decodes an object of the API. Property names may have any case; unknown ones with
// content are refused.
func Unmarshal[T any](data []byte) (*T, *Problem) {
	o := OutlineOf(data, PartSize)
	if p := o.TooMany(); p != nil {
		return nil, p
	}
	return UnmarshalObject[T](data)
}

// UnmarshalObject decodes a body whose Outline was checked.
func UnmarshalObject[T any](data []byte) (*T, *Problem) {
	object, p := unmarshalNew(data, func() any { return new(T) })
	if p != nil {
		return nil, p
	}
	return object.(*T), nil
}

// UnmarshalNew is Unmarshal into an object that fresh returns.
func UnmarshalNew(data []byte, fresh func() any) (any, *Problem) {
	o := OutlineOf(data, PartSize)
	if p := o.TooMany(); p != nil {
		return nil, p
	}
	return unmarshalNew(data, fresh)
}

func unmarshalNew(data []byte, fresh func() any) (any, *Problem) {
	req := fresh()
	dec, err := decodeJSON(data, req, true)
	if err != nil && len(data) <= MaxUnknown && strings.HasPrefix(err.Error(), unknownField) {
		loose, t := fresh(), reflect.TypeOf(req).Elem()
		if dec, err = decodeJSON(data, loose, false); err == nil {
			if name := unknownWithContent(data, t); name != "" {
				p := unknownProblem(name)
				p.known = func(data []byte) ([]byte, []string) { return knownOnly(data, t) }
				return nil, p
			}
			req = loose
		}
	}
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			if p := UnclearProblem(data); p != nil {
				return nil, p
			}
			return req, nil
		}
		return nil, syntaxProblem(data, dec.InputOffset(), "there is text after the end of the object")
	}
	return nil, DecodeProblem(data, err)
}

// DecodeProblem refuses a body because of an error of the JSON decoder.
func DecodeProblem(data []byte, err error) *Problem {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntaxProblem(data, syntax.Offset, syntax.Error())
	case errors.As(err, &kind):
		p := RefuseField(http.StatusBadRequest, fieldOf(kind), kind.Value, "is of the wrong type "+position(data, kind.Offset), kindName(kind))
		return p
	case errors.Is(err, io.EOF):
		return Refuse(http.StatusBadRequest, "the body is empty: a JSON object is expected")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return syntaxProblem(data, int64(len(data)), "it ends too early")
	}
	if name, ok := strings.CutPrefix(err.Error(), unknownField); ok {
		return unknownProblem(strings.Trim(name, `"`))
	}
	return Refuse(http.StatusBadRequest, "the body can't be read: %v", err)
}

// MaxUnknown is the largest body whose unknown properties are inspected, which would take many
// seconds for larger ones. Controllers send one service at a time.
const MaxUnknown = 1 << 20

// unknownField is the prefix of the decoder's error for an unknown property.
const unknownField = "json: unknown field "

// UnclearProblem refuses ambiguous bodies that the decoder accepts: null, which would be an object
// without properties, text that is not UTF-8, and a property that is given twice. It does not
// search large bodies, as for unknown properties.
func UnclearProblem(data []byte) *Problem {
	switch {
	case string(bytes.TrimSpace(data)) == "null":
		return Refuse(http.StatusBadRequest, "the body is null: a JSON object is expected")
	case !utf8.Valid(data):
		return Refuse(http.StatusBadRequest, "the body is not UTF-8 %s", position(data, validPrefix(data)+1))
	case len(data) > MaxUnknown:
		return nil
	}
	name, offset := manifest.DuplicateName(data)
	if offset < 0 {
		return nil
	}
	name = Shorten(name)
	p := Refuse(http.StatusBadRequest, "property %q is given twice %s", name, position(data, int64(offset)))
	p.Body.Field, p.Body.Reason = name, "is given twice"
	return p
}

// validPrefix returns the number of bytes before the first one that is not UTF-8.
func validPrefix(data []byte) (n int64) {
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			break
		}
		data, n = data[size:], n+int64(size)
	}
	return n
}

// decodeJSON decodes the first value of data.
func decodeJSON(data []byte, into any, strict bool) (*json.Decoder, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if strict {
		dec.DisallowUnknownFields()
	}
	return dec, dec.Decode(into)
}

func unknownProblem(name string) *Problem {
	name = Shorten(name)
	p := Refuse(http.StatusBadRequest, "unknown property %q", name)
	p.Body.Field, p.Body.Reason = name, "is not a property of the API"
	return p
}

func syntaxProblem(data []byte, offset int64, reason string) *Problem {
	reason = strings.TrimPrefix(reason, "json: ")
	p := Refuse(http.StatusBadRequest, "the body is not JSON %s: %s", position(data, offset), reason)
	p.Body.Reason = reason
	return p
}

// position converts an offset, of the last byte read, to a line and column as editors count.
func position(data []byte, offset int64) string {
	before := data[:max(0, min(offset-1, int64(len(data))))]
	line := 1 + bytes.Count(before, []byte{'\n'})
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("(line %d, column %d)", line, column)
}

func fieldOf(e *json.UnmarshalTypeError) string {
	if e.Field == "" {
		return "body"
	}
	return e.Field
}

// kindName returns JSON's name of the expected type.
func kindName(e *json.UnmarshalTypeError) string {
	if e.Type == reflect.TypeFor[v1.Seconds]() {
		return "a number of seconds, or a duration of whole seconds such as 60s or 1m"
	}
	switch k := e.Type.Kind().String(); {
	case k == "bool":
		return "true or false"
	case k == "string":
		return "a string"
	case k == "slice":
		return "an array"
	case k == "struct":
		return "an object"
	default:
		return "a whole number"
	}
}

// MaxQuoted bounds the bytes of a path, or of a sentence, in an entry.
const MaxQuoted = 512

// Shorten truncates a long text of a client.
func Shorten(s string) string {
	if len(s) <= MaxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:MaxQuoted], "") + "..."
}
