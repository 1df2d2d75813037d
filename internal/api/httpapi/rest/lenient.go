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

// The existing loxilb passes over properties that it does not know. With --compat this one does
// too, and says so: to the client in a header Warning, in the log once for each name. So it is with
// requests and files of the contract's clients. Requests that loxilb has of its own are read
// strictly: a misspelt dry_run or deadline would have them do what they were to keep from.

// maxIgnored is how many names the log has: they are a client's.
const maxIgnored = 100

// ignored are the properties that were ignored and logged.
type ignored struct {
	log   *slog.Logger
	mu    sync.Mutex
	names []string
}

// IsLenient reports whether requests of the existing loxilb's clients may have names that are not
// known.
func (rd *Reader) IsLenient() bool { return rd.ignored != nil }

// first reports whether a name is new, and there is room for it.
func (o *ignored) first(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.names) == maxIgnored || slices.Contains(o.names, name) {
		return false
	}
	o.names = append(o.names, name)
	return true
}

// DecodeLenient is decoded for the operations that the contract's clients send.
func DecodeLenient[T any](rd *Reader, w http.ResponseWriter, r *http.Request, decode func([]byte) (T, *Problem)) (T, *Problem) {
	var notes Warnings
	defer func() { notes.Write(w) }()
	return Decode(rd, w, r, func(data []byte) (T, *Problem) { return Lenient(rd, data, &notes, decode) })
}

// exact are the objects of the contract whose unknown properties are refused all the same: of a
// firewall rule, they may say which packets are meant, and a rule that does not say it means all.
var exact = []reflect.Type{reflect.TypeFor[v1.FirewallRequest](), reflect.TypeFor[v1.FirewallRule](), reflect.TypeFor[v1.FirewallArguments]()}

// Lenient decodes a body; like the existing loxilb, if the API is to be like it.
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
		notes.Add("there is no property %q: it is passed over", name)
		if rd.ignored.first(name) {
			rd.ignored.log.Warn("unknown property ignored because of --compat", "property", name)
		}
	}
	return out, nil
}

// knownOnly returns a body with blanks for the properties that t does not have, which leave all
// others where they are, and the names of those of them that say something. The body has been
// decoded as a t before.
func knownOnly(data []byte, t reflect.Type) (known []byte, names []string) {
	known = bytes.Clone(data)
	blankUnknown(data, known, t, "", &names)
	return known, names
}

// blankUnknown puts blanks into known where data has what t has no member for.
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
			if member, ok := MemberOf(t, path[1:]); !ok && !slices.Contains(exact, t) {
				blank(known[from:end]) // with the comma before it
				name := lb.Printable(strings.TrimPrefix(at+path, "."))
				if saysSomething(part) && !slices.Contains(*names, name) && len(*names) <= maxIgnored {
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

// blank leaves the ends of lines, by which errors say where they are.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' {
			text[i] = ' '
		}
	}
}

// saysSomething reports whether a value is more than false, 0, "", null and what holds nothing
// else.
func saysSomething(value []byte) bool {
	w := &unknownWalk{dec: json.NewDecoder(bytes.NewReader(value))}
	w.dec.UseNumber()
	return w.hasContent()
}

// A property that this version does not know may be a typing error, or a newer client's. Where it
// says something (anything but false, 0, "", null and what holds nothing else) the request is
// refused: a service that works in another way than it was asked to is worse than one that does
// not. Where it says nothing it is passed over: so a client that writes all properties that it
// knows may be newer than the server.

// unknownSaid finds the first property of a body that t does not have and that says something; "":
// there is none. The body has been decoded as a t before.
func unknownSaid(data []byte, t reflect.Type) string {
	w := &unknownWalk{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	w.known(t)
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

// hasContent reads a value that nothing is known of, and reports whether it says something.
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
