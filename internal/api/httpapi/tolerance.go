package httpapi

import (
	"bytes"
	"encoding/json"
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

// maxPassedOver is how many names the log has: they are a client's.
const maxPassedOver = 100

// passedOver are the names of which the log has said that they are not known.
type passedOver struct {
	mu    sync.Mutex
	names []string
}

// first tells whether a name is new, and there is room for it.
func (o *passedOver) first(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.names) == maxPassedOver || slices.Contains(o.names, name) {
		return false
	}
	o.names = append(o.names, name)
	return true
}

// decodedTolerantly is decoded for the operations that the contract's clients send.
func decodedTolerantly[T any](a *API, w http.ResponseWriter, r *http.Request, decode func([]byte) (T, *problem)) (T, *problem) {
	var notes warnings
	defer func() { notes.write(w) }()
	return decoded(a, w, r, func(data []byte) (T, *problem) { return tolerant(a, data, &notes, decode) })
}

// exact are the objects of the contract whose unknown properties are refused all the same: of a
// firewall rule, they may say which packets are meant, and a rule that does not say it means all.
var exact = []reflect.Type{reflect.TypeFor[v1.FirewallRequest](), reflect.TypeFor[v1.FirewallRule](), reflect.TypeFor[v1.FirewallArguments]()}

// tolerant decodes a body; like the existing loxilb, if the API is to be like it.
func tolerant[T any](a *API, data []byte, notes *warnings, decode func([]byte) (T, *problem)) (T, *problem) {
	out, p := decode(data)
	if p == nil || p.known == nil || !a.Compat {
		return out, p
	}
	known, names := p.known(data)
	if out, p = decode(known); p != nil {
		return out, p
	}
	for _, name := range names {
		notes.add("there is no property %q: it is passed over", name)
		if a.passedOver.first(name) {
			a.Log.Warn("unknown property ignored because of --compat", "property", name)
		}
	}
	return out, nil
}

// knownOnly is a body with blanks for the properties that T does not have, which leave all others
// where they are, and the names of those of them that say something. The body has been decoded as a
// T before.
func knownOnly[T any](data []byte) (known []byte, names []string) {
	known = bytes.Clone(data)
	blankUnknown(data, known, reflect.TypeFor[T](), "", &names)
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
			if member, ok := memberOf(t, path[1:]); !ok && !slices.Contains(exact, t) {
				blank(known[from:end]) // with the comma before it
				name := lb.Printable(strings.TrimPrefix(at+path, "."))
				if saysSomething(part) && !slices.Contains(*names, name) && len(*names) <= maxPassedOver {
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

// saysSomething tells whether a value is more than false, 0, "", null and what holds nothing else.
func saysSomething(value []byte) bool {
	w := &unknownWalk{dec: json.NewDecoder(bytes.NewReader(value))}
	w.dec.UseNumber()
	return w.says()
}
