package rest

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// With --compat, unknown properties in requests and files of existing clients are ignored, as in
// the existing loxilb. They are reported in a header Warning, and in the log once per name.
// Requests that the contract lacks are read strictly: with a misspelt dry_run, the request would be
// carried out.

// maxIgnored bounds the logged names, which clients choose.
const maxIgnored = 100

// ignored are the properties that were ignored and logged.
type ignored struct {
	log   *slog.Logger
	mu    sync.Mutex
	names []string
}

// IsLenient reports whether requests of existing clients may have unknown properties.
func (rd *Reader) IsLenient() bool { return rd.ignored != nil }

// add records a name, and reports whether it is new and there was room for it.
func (o *ignored) add(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.names) == maxIgnored || slices.Contains(o.names, name) {
		return false
	}
	o.names = append(o.names, name)
	return true
}

// DecodeLenient decodes bodies of operations that the existing loxilb's clients send.
func DecodeLenient[T any](rd *Reader, w http.ResponseWriter, r *http.Request, decode func([]byte) (T, *Problem)) (T, *Problem) {
	var notes Warnings
	defer func() { notes.Write(w) }()
	return Decode(rd, w, r, func(data []byte) (T, *Problem) { return Lenient(rd, data, &notes, decode) })
}

// strictTypes are objects of the existing loxilb whose unknown properties are refused nevertheless.
// A property that selects packets must not be ignored: the firewall rule would match all packets.
var strictTypes = []reflect.Type{reflect.TypeFor[v1.FirewallRequest](), reflect.TypeFor[v1.FirewallRule](), reflect.TypeFor[v1.FirewallArguments]()}

// Lenient decodes a body. With --compat, it ignores unknown properties, like the existing loxilb.
func Lenient[T any](rd *Reader, data []byte, notes *Warnings, decode func([]byte) (T, *Problem)) (T, *Problem) {
	out, p := decode(data)
	if p == nil || p.known == nil || rd.ignored == nil {
		return out, p
	}
	known, names := p.known(data)
	if out, p = decode(known); p != nil {
		return out, p
	}
	for _, name := range names {
		notes.Add("property %q is unknown and ignored", name)
		if rd.ignored.add(name) {
			rd.ignored.log.Warn("unknown property ignored because of --compat", "property", name)
		}
	}
	return out, nil
}

// knownOnly returns a copy of a body in which blanks replace the properties that t lacks, so all
// others keep their positions. names are the replaced properties with content. The body must be
// valid for t.
func knownOnly(data []byte, t reflect.Type) (known []byte, names []string) {
	known = bytes.Clone(data)
	blankUnknown(data, known, t, "", &names)
	return known, names
}

// blankUnknown writes blanks into known where data has a property that t lacks.
func blankUnknown(data, known []byte, t reflect.Type, at string, names *[]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	from, kept := bytes.IndexByte(data, '{')+1, false
	jsonParts(data, func(path string, start int, part []byte) bool {
		end := start + len(part)
		switch {
		case t.Kind() == reflect.Slice && path[0] == '[':
			blankUnknown(data[start:end], known[start:end], t.Elem(), at, names)
		case t.Kind() == reflect.Struct && path[0] == '.':
			if member, ok := MemberOf(t, path[1:]); !ok && !slices.Contains(strictTypes, t) {
				blank(known[from:end]) // with the comma before it
				name := lb.Printable(strings.TrimPrefix(at+path, "."))
				if isNonEmpty(part) && !slices.Contains(*names, name) && len(*names) <= maxIgnored {
					*names = append(*names, name)
				}
			} else {
				if comma := bytes.IndexByte(known[from:start], ','); !kept && comma >= 0 {
					known[from+comma] = ' '
				}
				kept = true
				if ok {
					blankUnknown(data[start:end], known[start:end], member, at+path, names)
				}
			}
			from = end
		}
		return true
	})
}

// blank keeps line breaks, since errors report positions by line.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' {
			text[i] = ' '
		}
	}
}

// isNonEmpty reports whether a value has content: it is not false, 0, "", null, or composed only of
// these.
func isNonEmpty(value []byte) bool {
	w := &unknownWalk{dec: json.NewDecoder(bytes.NewReader(value))}
	w.dec.UseNumber()
	return w.hasContent()
}

// An unknown property may be a typing error, or a newer client's. With content (anything but false,
// 0, "", null and compositions of these) the request is refused: a service that works differently
// than requested is worse than none. Without content it is ignored, so a client that sends all its
// properties may be newer than the server.

// unknownWithContent returns the first property with content that t lacks, or "". The body must be
// valid for t.
func unknownWithContent(data []byte, t reflect.Type) string {
	w := &unknownWalk{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	w.known(t)
	return w.found
}

// unknownWalk reads a body token by token, without keeping it in memory.
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
		w.hasContent()
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
	if w.hasContent() && w.found == "" {
		w.found = name
	}
}

// hasContent reads a value of unknown type, and reports whether it has content.
func (w *unknownWalk) hasContent() (something bool) {
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
			something = w.hasContent() || something
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
