package listing

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// Fields are the fields of a type of the API, by JSON path: serviceArguments.name.
type Fields struct {
	list  []field
	words map[string]string // other names of paths
}

type field struct {
	path  string
	index []int // through lists and pointers too
}

// FieldsOf lists the fields of T. words maps other names of fields to paths.
func FieldsOf[T any](words map[string]string) *Fields { return fieldsOf(reflect.TypeFor[T](), words) }

// FieldsOfObject is FieldsOf for the type of object.
func FieldsOfObject(object any, words map[string]string) *Fields {
	return fieldsOf(reflect.TypeOf(object), words)
}

func fieldsOf(t reflect.Type, words map[string]string) *Fields {
	f := &Fields{words: words}
	f.add("", nil, t)
	return f
}

func (f *Fields) add(prefix string, index []int, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		f.list = append(f.list, field{strings.TrimSuffix(prefix, "."), index})
		return
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			f.add(prefix+name+".", append(slices.Clip(index), i), t.Field(i).Type)
		}
	}
}

// Paths returns the paths of all fields.
func (f *Fields) Paths() []string {
	list := make([]string, len(f.list))
	for i := range f.list {
		list[i] = f.list[i].path
	}
	return list
}

// Find returns the path of a field by its path, the path's last part, or another name. A field of
// the outer object takes precedence over one of an inner object.
func (f *Fields) Find(name string) (string, error) {
	name = strings.TrimPrefix(strings.Trim(name, "{}"), ".")
	if path, ok := f.words[strings.ToLower(name)]; ok {
		return path, nil
	}
	var found []string
	depth := 0
	for _, one := range f.list {
		if strings.EqualFold(one.path, name) {
			return one.path, nil
		}
		rest := len(one.path) - len(name)
		if rest <= 0 || one.path[rest-1] != '.' || !strings.EqualFold(one.path[rest:], name) {
			continue
		}
		if d := len(one.index); len(found) == 0 || d <= depth {
			if d < depth {
				found = nil
			}
			found, depth = append(found, one.path), d
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("field %q is not known%s (there are %s)", name, lb.DidYouMean(name, f.names()), strings.Join(f.names(), ", "))
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("field %q is ambiguous: give one of %s", name, strings.Join(found, ", "))
}

// names returns the shortest names of all fields.
func (f *Fields) names() []string {
	count := map[string]int{}
	last := func(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
	for _, one := range f.list {
		count[last(one.path)]++
	}
	list := make([]string, 0, len(f.list))
	for _, one := range f.list {
		name := last(one.path)
		if count[name] > 1 {
			name = one.path
		}
		list = append(list, name)
	}
	for word := range f.words {
		list = append(list, word)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Names returns the names of the fields for users.
func (f *Fields) Names() []string { return f.names() }

// Values returns the values of a field of an object, given by pointer. For a list, it returns the
// values of all elements.
func (f *Fields) Values(object any, path string) (out []string) {
	i := slices.IndexFunc(f.list, func(one field) bool { return one.path == path })
	if i < 0 {
		return nil
	}
	collect(reflect.ValueOf(object), f.list[i].index, &out)
	return out
}

func collect(v reflect.Value, index []int, out *[]string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			collect(v.Elem(), index, out)
		}
		return
	case reflect.Slice:
		for i := range v.Len() {
			collect(v.Index(i), index, out)
		}
		return
	}
	if len(index) > 0 {
		collect(v.Field(index[0]), index[1:], out)
		return
	}
	*out = append(*out, text(v))
}

// text formats a value as JSON, without quotes.
func text(v reflect.Value) string {
	if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		if v.IsZero() {
			return ""
		}
		b, err := m.MarshalText()
		if err != nil {
			return ""
		}
		return string(b)
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}
