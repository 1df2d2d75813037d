package v1

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Properties knows where T, an object of the API, has its properties: by name, and those of an object in it by both
// names, "serviceArguments.mode". So code that works for any property needs no line for each.
//
// A value is a bool, an int, a string or a []string. A list of objects that have one property each, such as
// allowedSources, is the list of the values.
type Properties[T any] map[string][]int

// PropertiesOf lists the properties of T. What is neither a value nor an object of values is left out.
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

// Get is the value of a property. given is false when it holds what it would if nobody had written it; the value is nil
// when nobody did for sure.
func (p Properties[T]) Get(object *T, name string) (value any, given bool) {
	v := p.field(object, name)
	given = !v.IsZero()
	switch v.Kind() {
	case reflect.Pointer:
		if !given {
			return nil, false
		}
		return int(v.Elem().Int()), true
	case reflect.Bool:
		return v.Bool(), given
	case reflect.Int:
		return int(v.Int()), given
	case reflect.Slice:
		return stringsOf(v), v.Len() > 0
	}
	return v.String(), given
}

// Set gives a property a value; a number where there is a Choice is written as such.
func (p Properties[T]) Set(object *T, name string, value any) {
	v := p.field(object, name)
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

// field panics on a name that T does not have: which names there are is known when the program is written.
func (p Properties[T]) field(object *T, name string) reflect.Value {
	index, ok := p[name]
	if !ok {
		panic(fmt.Sprintf("%T has no property %q", *object, name))
	}
	return reflect.ValueOf(object).Elem().FieldByIndex(index)
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
