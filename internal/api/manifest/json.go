package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode"
)

// jsonValue is a part of a JSON document, parsed lazily.
type jsonValue struct {
	file  []byte
	start int
	raw   []byte
}

type jsonError struct {
	line, column int
	text         string
}

// maxValues is the approximate limit of values in JSON: twice those of the largest possible
// configuration.
const maxValues = 8 << 20

// jsonValues estimates the number of values in JSON.
func jsonValues(data []byte) (n int) {
	for _, c := range data {
		if c == ',' || c == '{' || c == '[' {
			n++
		}
	}
	return n
}

// jsonDocuments reads consecutive values.
func jsonDocuments(data []byte) (list []value, failed *jsonError) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			offset := int(d.InputOffset())
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				offset = int(syntax.Offset) - 1
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				offset, err = len(data), errors.New("it ends too early")
			}
			line, column := placeOf(data, offset)
			return nil, &jsonError{line, column, strings.TrimPrefix(err.Error(), "json: ")}
		}
		end := int(d.InputOffset())
		list = append(list, &jsonValue{data, end - len(raw), raw})
	}
}

func placeOf(data []byte, offset int) (line, column int) {
	before := data[:max(0, min(offset, len(data)))]
	return 1 + bytes.Count(before, []byte{'\n'}), len(before) - bytes.LastIndexByte(before, '\n')
}

func (v *jsonValue) place() (line, column int) { return placeOf(v.file, v.start) }
func (v *jsonValue) isNull() bool              { return string(v.raw) == "null" }
func (v *jsonValue) isObject() bool            { return v.raw[0] == '{' }

func (v *jsonValue) text() string {
	var s string
	if json.Unmarshal(v.raw, &s) == nil {
		return s
	}
	return string(v.raw)
}

// parts yields the members of an object or a list; names are "" in a list.
func (v *jsonValue) parts(yield func(name string, part *jsonValue) bool) {
	d := json.NewDecoder(bytes.NewReader(v.raw))
	open, err := d.Token()
	for err == nil && d.More() {
		name := ""
		if open == json.Delim('{') {
			token, _ := d.Token() // it was read before, as a whole
			name, _ = token.(string)
		}
		var raw json.RawMessage
		err = d.Decode(&raw)
		if err == nil && !yield(name, &jsonValue{v.file, v.start + int(d.InputOffset()) - len(raw), raw}) {
			return
		}
	}
}

func (v *jsonValue) names() (list []string) {
	if v.isObject() {
		for name := range v.parts {
			list = append(list, name)
		}
	}
	return list
}

func (v *jsonValue) member(name string) (value, bool) {
	if v.isObject() {
		for n, part := range v.parts {
			if strings.EqualFold(n, name) {
				return part, true
			}
		}
	}
	return nil, false
}

func (v *jsonValue) elements() (list []value, ok bool) {
	if v.raw[0] != '[' {
		return nil, false
	}
	for _, part := range v.parts {
		list = append(list, part)
	}
	return list, true
}

func (v *jsonValue) json(r *reader) json.RawMessage {
	if name, offset := DuplicateName(v.raw); offset >= 0 {
		line, column := placeOf(v.file, v.start+offset)
		r.addErrorAt(line, column, "%s is given twice", name)
	}
	return v.raw
}

// fold maps all names that the decoder matches to one property to the same text.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for { // to the smallest rune that differs only in case
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}

// DuplicateName finds a property that occurs twice in a JSON object, and the end of the second one;
// -1: none. The decoder would silently use the last one.
func DuplicateName(raw []byte) (name string, offset int) {
	type open struct {
		names map[string]bool // nil: a list
		value bool            // of a name, comes next
	}
	var stack []open
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return "", -1
		}
		at := len(stack) - 1
		switch token {
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:at]
			continue
		}
		if at >= 0 && stack[at].names != nil {
			if stack[at].value = !stack[at].value; stack[at].value {
				name := token.(string) // as names of properties are
				if stack[at].names[fold(name)] {
					return name, int(d.InputOffset())
				}
				stack[at].names[fold(name)] = true
				continue
			}
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, open{names: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, open{})
		}
	}
}
