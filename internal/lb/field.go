package lb

import (
	"fmt"
	"slices"
	"strings"
)

// Field is one field of T (a Service or an Endpoint). What it is called, how it is read, written
// and compared stands here and nowhere else: text, journal, REST, loxicmd, equality and copies go
// through the lists of KeyFields, Fields and EndpointFields.
type Field[T any] struct {
	Name     string // in errors
	Also     string // another name in errors: that of one value of a list
	Text     string // before the = of Service.String; "" for what stands in the key, or in an endpoint's text
	Record   string // its member in a record of the journal; "" as above
	Place    int    // of the member among those of a record, which keep their order
	Since    int    // the format of records that has it first
	Property string // where REST has it, from the entry or the endpoint on: serviceArguments.mode
	Flag     string // of loxicmd create lb; "" for none
	Help     string // of the flag: one sentence
	Allowed  string // what an error says would have been taken
	Always   bool   // written where it is the default, too
	Required bool   // REST does not take an entry without it
	Numbered bool   // REST writes the number of the word
	Fixed    bool   // an update leaves it as it was when the service was made

	form form[T]
}

// form is how the value of a field is read, written and compared.
type form[T any] interface {
	get(*T) any // as JSON has it: bool, int, string or []string
	set(t *T, f *Field[T], v any) error
	text(*T) string
	parse(t *T, f *Field[T], s string) error
	zero(*T) bool
	same(a, b *T) bool
	copy(to, from *T)
}

// IsDefault tells whether t has the field's default, which nobody needs to write.
func (f *Field[T]) IsDefault(t *T) bool { return f.form.zero(t) }

// Same tells whether both have the same value.
func (f *Field[T]) Same(a, b *T) bool { return f.form.same(a, b) }

// Copy gives to the value of from. They share nothing.
func (f *Field[T]) Copy(to, from *T) { f.form.copy(to, from) }

// Show is the value for people: as text writes it, not much of what is long, and "none" for
// nothing.
func (f *Field[T]) Show(t *T) string {
	if s := f.form.text(t); s != "" {
		return shortened(s)
	}
	return "none"
}

// Value is what REST has in the property: a bool, int, string or []string.
func (f *Field[T]) Value(t *T) any {
	if n, ok := f.form.(interface{ number(*T) int }); ok && f.Numbered {
		return n.number(t)
	}
	return f.form.get(t)
}

// SetValue is the inverse of Value, and takes what users write.
func (f *Field[T]) SetValue(t *T, v any) error { return f.form.set(t, f, v) }

// SetFlag takes what a command line has behind the flag; of a list, values with commas between
// them.
func (f *Field[T]) SetFlag(t *T, s string) error {
	if p, ok := f.form.(interface {
		parseFlag(t *T, f *Field[T], s string) error
	}); ok {
		return p.parseFlag(t, f, s)
	}
	return f.form.parse(t, f, s)
}

// IsList tells whether the field holds any number of values.
func (f *Field[T]) IsList() bool {
	var t T
	_, ok := f.form.get(&t).([]string)
	return ok
}

// IsBool tells whether the field is true or false.
func (f *Field[T]) IsBool() bool {
	var t T
	_, ok := f.form.get(&t).(bool)
	return ok
}

// IsTime tells whether the field is written as a time with its unit, as 500ms.
func (f *Field[T]) IsTime() bool {
	_, ok := f.form.(spell[T])
	return ok
}

// Choices are the words of the field; none where it is no word.
func (f *Field[T]) Choices() []Choice {
	if c, ok := f.form.(interface{ choices() []Choice }); ok {
		return c.choices()
	}
	return nil
}

// Usage is Help, and what each word does.
func (f *Field[T]) Usage() string {
	var now, missing []string
	for _, c := range f.Choices() {
		switch {
		case !c.Available:
			missing = append(missing, c.Word)
		default:
			now = append(now, c.Word+" ("+c.Help+")")
		}
	}
	s := f.Help
	if len(now) > 0 {
		s += ": " + list(now)
	}
	if len(missing) > 0 {
		s += "; not part of this build: " + strings.Join(missing, ", ")
	}
	return s
}

// CheckProperty refuses what is no word of a property of services that has words; value is as
// PropertyText writes it.
func CheckProperty(property, value string) error {
	for _, f := range slices.Concat(KeyFields(), Fields()) {
		if f.Property != property || len(f.Choices()) == 0 {
			continue
		}
		if f.Numbered && strings.Trim(value, "0123456789") == "" { // of a newer server, perhaps
			return nil
		}
		var s Service
		return f.SetFlag(&s, value)
	}
	return nil
}

// PropertyText is what REST has in a property of a service, as text, for a value as the flag of the
// field takes it: a number for a word, "" for the default. What is no such value, or of no such
// property, stays as it is.
func PropertyText(property, value string) string {
	for _, f := range slices.Concat(KeyFields(), Fields()) {
		if f.Property != property || f.IsList() {
			continue
		}
		var s Service
		if err := f.SetFlag(&s, value); err != nil {
			return value
		}
		if f.IsDefault(&s) {
			return ""
		}
		return fmt.Sprint(f.Value(&s))
	}
	return value
}
