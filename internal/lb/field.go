package lb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Field is one field of T (a Service or an Endpoint). It is the only definition of the field's
// name, and of how it is parsed, formatted and compared: text, journal, REST, loxicmd, equality and
// copies iterate over KeyFields, Fields and EndpointFields.
type Field[T any] struct {
	Name     string // in errors
	Also     string // in errors about one value of a list
	Text     string // before the = of Service.String; "": part of the key, or of an endpoint's text
	Record   string // its member in a record of the journal; "" as above
	Position int    // position of the member in a record, which never changes
	Since    int    // the first format of records that has it
	Property string // path of its REST property, from the entry or the endpoint on: serviceArguments.mode
	Flag     string // of loxicmd create lb; "": none
	Help     string // of the flag: one sentence
	Allowed  string // the allowed values, for errors
	Always   bool   // also written if it has the default
	Required bool   // REST refuses an entry without it
	Numbered bool   // REST writes the number of the word instead of the word
	Fixed    bool   // an update does not change it

	form form[T]
}

// form parses, formats, compares and copies the value of a field.
type form[T any] interface {
	get(*T) any // a JSON value: bool, int, string or []string
	set(t *T, f *Field[T], v any) error
	text(*T) string
	parse(t *T, f *Field[T], s string) error
	zero(*T) bool
	same(a, b *T) bool
	copy(to, from *T)
}

// IsDefault reports whether the field has its default in t, which need not be written.
func (f *Field[T]) IsDefault(t *T) bool { return f.form.zero(t) }

// Same reports whether the field has the same value in a and b.
func (f *Field[T]) Same(a, b *T) bool { return f.form.same(a, b) }

// Copy copies the field's value deeply.
func (f *Field[T]) Copy(to, from *T) { f.form.copy(to, from) }

// Show returns the value for humans: as text, shortened if it is long, and "none" if it is empty.
func (f *Field[T]) Show(t *T) string {
	if s := f.form.text(t); s != "" {
		return truncated(s)
	}
	return "none"
}

// Value returns the value of the REST property: a bool, int, string or []string.
func (f *Field[T]) Value(t *T) any {
	if n, ok := f.form.(interface{ number(*T) int }); ok && f.Numbered {
		return n.number(t)
	}
	return f.form.get(t)
}

// SetValue is the inverse of Value, and accepts what users write.
func (f *Field[T]) SetValue(t *T, v any) error { return f.form.set(t, f, v) }

// SetFlag parses the argument of a command-line flag; list values are separated by commas.
func (f *Field[T]) SetFlag(t *T, s string) error {
	if p, ok := f.form.(interface {
		parseFlag(t *T, f *Field[T], s string) error
	}); ok {
		return p.parseFlag(t, f, s)
	}
	return f.form.parse(t, f, s)
}

// IsList reports whether the field holds any number of values.
func (f *Field[T]) IsList() bool {
	var t T
	_, ok := f.form.get(&t).([]string)
	return ok
}

// IsBool reports whether the field is true or false.
func (f *Field[T]) IsBool() bool {
	var t T
	_, ok := f.form.get(&t).(bool)
	return ok
}

// IsTime reports whether the field is a duration with a unit, such as 500ms.
func (f *Field[T]) IsTime() bool {
	_, ok := f.form.(durationForm[T])
	return ok
}

// Choices returns the words that the field accepts; none if it is not an enumeration.
func (f *Field[T]) Choices() []Choice {
	if c, ok := f.form.(interface{ choices() []Choice }); ok {
		return c.choices()
	}
	return nil
}

// Usage returns Help, and the meaning of each word.
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

// CheckProperty refuses an unknown word for a property of services that accepts words. value has
// the form of PropertyText.
func CheckProperty(property, value string) error {
	for _, f := range slices.Concat(KeyFields(), fields()) {
		if f.Property != property || len(f.Choices()) == 0 {
			continue
		}
		if f.Numbered && strings.Trim(value, "0123456789") == "" { // perhaps a newer server knows the number
			return nil
		}
		var s Service
		return f.SetFlag(&s, value)
	}
	return nil
}

// PropertyText converts a flag's value to the text of the REST property: a number for a word, ""
// for the default. An invalid value, or a value of an unknown property, is returned unchanged.
func PropertyText(property, value string) string {
	for _, f := range slices.Concat(KeyFields(), fields()) {
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

// enum is an enumeration with words for humans. Its numbers are the existing loxilb's if that has
// the enumeration.
type enum interface {
	~uint8
	fmt.Stringer
}

// choice is one value of an enumeration.
type choice[T enum] struct {
	value T
	word  string
	help  string // its effect
	// alternative replaces a value of the existing loxilb that this build does not support; "":
	// supported
	alternative string
}

// Choice is one word that a field accepts, as help and manual show it.
type Choice struct {
	Word      string
	Number    int
	Help      string
	Available bool // false: the contract has it, and this version refuses it
}

// wordOf returns the word of v, or kind(N) for an unknown number.
func wordOf[T enum](kind string, v T, all []choice[T]) string {
	for _, c := range all {
		if c.value == v {
			return c.word
		}
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// parseWord returns the value of word s. "" means the value 0, if that has a word.
func parseWord[T enum](field, s string, all []choice[T]) (T, error) {
	for _, c := range all {
		if s == c.word || s == "" && c.value == 0 {
			return c.value, nil
		}
	}
	known := available(all)
	return 0, NewFieldError(field, s, "is not known"+DidYouMean(s, known), list(known))
}

// parseWordOrNumber also accepts the number, in its shortest form only: "01" and "+1" are probably
// mistakes.
func parseWordOrNumber[T enum](field, s string, all []choice[T]) (T, error) {
	for _, c := range all {
		if s == strconv.Itoa(int(c.value)) {
			return c.value, nil
		}
	}
	return parseWord(field, s, all)
}

// wordError returns why v is refused: unknown, or not supported. It returns nil for a supported
// value.
func wordError[T enum](field string, v T, all []choice[T]) error {
	i := slices.IndexFunc(all, func(c choice[T]) bool { return c.value == v })
	if i >= 0 && all[i].alternative == "" {
		return nil
	}
	allowed := list(available(all))
	if i >= 0 {
		return UnsupportedValue(field, all[i].word, all[i].alternative, allowed)
	}
	return NewFieldError(field, v.String(), "is not known", allowed)
}

// available returns the words that this build supports.
func available[T enum](all []choice[T]) (words []string) {
	for _, c := range all {
		if c.alternative == "" {
			words = append(words, c.word)
		}
	}
	return words
}
