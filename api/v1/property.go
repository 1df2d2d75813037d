package v1

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Properties finds the properties of T, an object of the API, by name. The name of a nested
// property is its path: "serviceArguments.mode". Code that handles properties by name needs no
// change for a new one.
//
// A value is a bool, an int, a string or a []string. A list of objects that have one property each,
// such as allowedSources, is the list of these properties' values.
type Properties[T any] map[string][]int

// PropertiesOf returns the properties of T, including those of its nested objects.
func PropertiesOf[T any]() Properties[T] {
	p := make(Properties[T])
	p.add("", nil, reflect.TypeFor[T]())
	return p
}

func (p Properties[T]) add(prefix string, index []int, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(index[:len(index):len(index)], i)
		switch {
		case f.Type.Kind() == reflect.Struct:
			p.add(prefix+name+".", at, f.Type)
		case isValue(f.Type):
			p[prefix+name] = at
		}
	}
}

func isValue(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer:
		return t.Elem().Kind() == reflect.Int
	case reflect.Slice:
		e := t.Elem()
		return e.Kind() == reflect.String || e.Kind() == reflect.Struct && e.NumField() == 1 && e.Field(0).Type.Kind() == reflect.String
	}
	return t.Kind() == reflect.Bool || t.Kind() == reflect.Int || t.Kind() == reflect.String
}

// Property is one property of T, found once by Properties.Of and read from many objects.
type Property[T any] struct{ index []int }

// Of returns the property of that name. It panics if T has none: names are known at compile time.
func (p Properties[T]) Of(name string) Property[T] {
	index, ok := p[name]
	if !ok {
		panic(fmt.Sprintf("%T has no property %q: add it to api/openapi.yaml, then run make generate", *new(T), name))
	}
	return Property[T]{index}
}

// Get calls Property.Get for the property of that name.
func (p Properties[T]) Get(object *T, name string) (value any, given bool) {
	return p.Of(name).Get(object)
}

// Set calls Property.Set for the property of that name.
func (p Properties[T]) Set(object *T, name string, value any) { p.Of(name).Set(object, value) }

// Given reports whether the object's property differs from its default.
func (p Property[T]) Given(object *T) bool { return given(p.field(object)) }

func given(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() > 0
	}
	return !v.IsZero()
}

// Get returns the value of the property, and whether it differs from its default. The value of a
// pointer that is not set is nil.
func (p Property[T]) Get(object *T) (value any, ok bool) {
	v := p.field(object)
	ok = given(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !ok {
			return nil, false
		}
		return int(v.Elem().Int()), true
	case reflect.Bool:
		return v.Bool(), ok
	case reflect.Int:
		return int(v.Int()), ok
	case reflect.Slice:
		return stringsOf(v), ok
	}
	return v.String(), ok
}

// Set sets the property. A Choice accepts a number or a word.
func (p Property[T]) Set(object *T, value any) {
	v := p.field(object)
	switch value := value.(type) {
	case bool:
		v.SetBool(value)
	case int:
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.ValueOf(&value))
		case reflect.String:
			v.SetString(strconv.Itoa(value))
		default:
			v.SetInt(int64(value))
		}
	case string:
		v.SetString(value)
	case []string:
		setStrings(v, value)
	}
}

func (p Property[T]) field(object *T) reflect.Value {
	v := reflect.ValueOf(object).Elem()
	for _, i := range p.index {
		v = v.Field(i)
	}
	return v
}

func stringsOf(v reflect.Value) []string {
	list := make([]string, v.Len())
	for i := range list {
		e := v.Index(i)
		if e.Kind() == reflect.Struct {
			e = e.Field(0)
		}
		list[i] = e.String()
	}
	return list
}

func setStrings(v reflect.Value, list []string) {
	out := reflect.MakeSlice(v.Type(), len(list), len(list))
	for i, s := range list {
		e := out.Index(i)
		if e.Kind() == reflect.Struct {
			e = e.Field(0)
		}
		e.SetString(s)
	}
	v.Set(out)
}
