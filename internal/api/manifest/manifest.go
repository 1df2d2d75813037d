package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"loxilb/internal/kinds"
)

// Object is an object of a file.
type Object struct {
	Kind     string // its kinds.Words.Document
	Metadata json.RawMessage
	Spec     json.RawMessage

	file     string
	whole    value // the document, or the element of a list
	spec     value
	metadata value
}

// Position is a place in a file, as editors count.
type Position struct {
	File         string
	Line, Column int
}

func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Error is an error at a position.
type Error struct {
	Position
	Text string
}

func (e *Error) Error() string { return e.Position.String() + ": " + e.Text }

// Errors are all errors of a file.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	if len(e) >= maxErrors {
		lines = append(lines, fmt.Sprintf("only the first %d are listed", maxErrors))
	}
	return strings.Join(lines, "\n")
}

// maxErrors bounds the errors of a file, and maxText the length of each.
const (
	maxErrors = 1000
	maxText   = 512
)

// Read finds the objects in a file. assume is the kind of objects without a kind, such as elements
// of a list that two kinds share; "": guess it from their properties. It returns all errors, or all
// objects.
func Read(file string, data []byte, assume string) ([]Object, Errors) {
	r := &reader{file: file, assume: assume}
	for doc := range documents(data, r) {
		if r.document(doc, true); r.isFull() {
			break
		}
	}
	if len(r.errors) > 0 {
		return nil, r.errors
	}
	return r.objects, nil
}

// documents returns the values of a file that is JSON or YAML.
func documents(data []byte, r *reader) iter.Seq[value] {
	start := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n")
	if len(start) == 0 || start[0] != '{' && start[0] != '[' {
		return yamlDocuments(data, r)
	}
	if n := jsonValues(data); n > maxValues {
		r.addErrorAt(1, 1, "it has about %d values, and at most %d are allowed: split it", n, maxValues)
		return slices.Values([]value(nil))
	}
	list, err := jsonDocuments(data)
	if err == nil {
		return slices.Values(list)
	}
	flow := &reader{file: r.file} // it may be YAML that begins with a brace
	if docs := slices.Collect(yamlDocuments(data, flow)); len(flow.errors) == 0 {
		return slices.Values(docs)
	}
	r.addErrorAt(err.line, err.column, "it is not JSON: %s", err.text)
	return slices.Values([]value(nil))
}

// reader collects the content of a file.
type reader struct {
	file    string
	assume  string
	objects []Object
	errors  Errors
	written int // bytes of JSON that were made of YAML
}

func (r *reader) addErrorAt(line, column int, format string, args ...any) {
	if r.isFull() {
		return
	}
	text := fmt.Sprintf(format, args...)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	r.errors = append(r.errors, Error{Position{r.file, line, column}, text})
}

// isFull reports whether no further errors are collected.
func (r *reader) isFull() bool { return len(r.errors) >= maxErrors }

func (r *reader) addError(v value, format string, args ...any) {
	line, column := v.place()
	r.addErrorAt(line, column, format, args...)
}

// document reads an object, a list of objects, or an object that holds lists.
func (r *reader) document(v value, top bool) {
	if v.isNull() {
		return
	}
	if list, ok := v.elements(); ok && top {
		r.list(list)
		return
	}
	if !v.isObject() {
		r.addError(v, "it is neither an object nor a list of objects")
		return
	}
	if kind, ok := v.member("kind"); ok {
		r.typed(v, kind)
		return
	}
	if r.lists(v) {
		return
	}
	if kind, ok := r.guessKind(v); ok {
		r.add(kind, v, v, nil)
		return
	}
	r.addError(v, "kind is missing: one of %s", names())
}

func (r *reader) list(elements []value) {
	for _, e := range elements {
		if r.document(e, false); r.isFull() {
			return
		}
	}
}

// typed reads an object with a kind.
func (r *reader) typed(v, kind value) {
	word := kind.text()
	if strings.EqualFold(word, "List") {
		items, _ := v.member("items")
		if list, ok := elementsOf(items); ok {
			r.list(list)
			return
		}
		r.addError(v, "a List has items")
		return
	}
	if api, ok := v.member("apiVersion"); !ok || api.text() != APIVersion {
		at := v
		if ok {
			at = api
		}
		r.addError(at, "apiVersion is not %s", APIVersion)
		return
	}
	k, ok := Find(word)
	if !ok {
		r.addError(kind, "kind %q is not known: one of %s", word, names())
		return
	}
	seen := map[string]bool{}
	for _, name := range v.names() {
		if r.isFull() {
			return
		}
		if seen[fold(name)] {
			r.addError(v, "%s is given twice", name)
			continue
		}
		seen[fold(name)] = true
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec"}, name) {
			at, _ := v.member(name)
			r.addError(at, "%s cannot be combined with spec: an object has apiVersion, kind, metadata and spec", name)
		}
	}
	metadata, _ := v.member("metadata")
	spec, ok := v.member("spec")
	if !ok && k.SpecOptional && metadata != nil && metadata.isObject() {
		spec, ok = &lineValue{jsonValue: jsonValue{raw: []byte("{}")}}, true
	}
	if !ok || !spec.isObject() {
		r.addError(v, "spec is missing: the fields that POST takes for a %s", k.Document)
		return
	}
	r.add(k, v, spec, metadata)
}

// lists reads an object whose members are lists, as GET returns them. It returns false for another
// object.
func (r *reader) lists(v value) (found bool) {
	for _, name := range v.names() {
		for _, k := range Kinds() {
			if !strings.EqualFold(k.List, name) {
				continue
			}
			list, _ := v.member(name)
			elements, ok := list.elements()
			if !ok && !list.isNull() || r.isOtherKind(k, elements) {
				continue
			}
			found = true
			for _, e := range elements {
				if r.isFull() {
					break
				}
				if !e.isObject() {
					r.addError(e, "a member of %s is not an object", name)
				} else if !isDerived(k, e) {
					r.add(k, e, e, nil)
				}
			}
			break
		}
	}
	return found
}

// isOtherKind reports whether a list is of another kind that shares its name.
func (r *reader) isOtherKind(k kinds.Words, elements []value) bool {
	if k.Member == "" {
		return false
	}
	if r.assume != "" {
		return r.assume != k.Document
	}
	if len(elements) == 0 {
		return false
	}
	_, has := elements[0].member(k.Member)
	return !has
}

// isDerived reports whether GET endpoint shows the object only because services probe it.
func isDerived(k kinds.Words, v value) bool {
	if k.Document != kinds.EndpointDocument {
		return false
	}
	services, shown := v.member("services")
	object, _ := v.member("object")
	list, _ := elementsOf(services)
	return shown && len(list) > 0 && (object == nil || object.text() != "true")
}

func elementsOf(v value) ([]value, bool) {
	if v == nil {
		return nil, false
	}
	return v.elements()
}

// guessKind returns the kind of an object that stands alone, as a POST body.
func (r *reader) guessKind(v value) (kinds.Words, bool) {
	if k, ok := Find(r.assume); ok {
		return k, true
	}
	for member, kind := range map[string]string{"serviceArguments": kinds.ServiceDocument, "ruleArguments": kinds.RuleDocument, "hostName": kinds.EndpointDocument} {
		if _, ok := v.member(member); ok {
			return Find(kind)
		}
	}
	return kinds.Words{}, false
}

func (r *reader) add(k kinds.Words, whole, spec, metadata value) {
	o := Object{Kind: k.Document, file: r.file, whole: whole, spec: spec, metadata: metadata}
	before := len(r.errors)
	o.Spec = spec.json(r)
	if metadata != nil {
		o.Metadata = metadata.json(r)
	}
	if len(r.errors) == before {
		r.objects = append(r.objects, o)
	}
}

// Position returns where the object begins.
func (o *Object) Position() Position { return o.Locate("") }

// Locate returns the position of a property of the spec, such as endpoints[3].weight, or else of
// the innermost existing part of its path. Properties of the metadata begin with "metadata.".
func (o *Object) Locate(field string) Position {
	at := o.whole
	if rest, ok := strings.CutPrefix(field, "metadata."); ok && o.metadata != nil {
		at, field = o.metadata, rest
	} else if field != "" {
		at = o.spec
	}
	for _, s := range steps(field) {
		next, ok := at.member(s.name)
		if s.index >= 0 {
			var list []value
			if list, ok = at.elements(); ok && s.index < len(list) {
				next = list[s.index]
			} else {
				ok = false
			}
		}
		if !ok {
			break
		}
		at = next
	}
	line, column := at.place()
	return Position{o.file, line, column}
}

// step is a member, or an element of a list.
type step struct {
	name  string
	index int // -1: it is a member
}

// steps splits a.b[3].c.
func steps(field string) (list []step) {
	for part := range strings.SplitSeq(field, ".") {
		name, rest, _ := strings.Cut(part, "[")
		if name != "" {
			list = append(list, step{name, -1})
		}
		for rest != "" {
			var index int
			if _, err := fmt.Sscanf(rest, "%d]", &index); err != nil {
				break
			}
			list = append(list, step{"", index})
			_, rest, _ = strings.Cut(rest, "[")
		}
	}
	return list
}
