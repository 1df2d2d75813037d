package lb

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scalar is the common part of all forms other than lists.
type scalar[T any, V comparable] struct{ at func(*T) *V }

func (s scalar[T, V]) zero(t *T) bool    { return *s.at(t) == *new(V) }
func (s scalar[T, V]) same(a, b *T) bool { return *s.at(a) == *s.at(b) }
func (s scalar[T, V]) copy(to, from *T)  { *s.at(to) = *s.at(from) }

// wordForm is a value of an enumeration.
type wordForm[T any, V enum] struct {
	scalar[T, V]
	all  func() []choice[V]
	read func(field, s string, all []choice[V]) (V, error)
}

func word[T any, V enum](at func(*T) *V, all func() []choice[V]) form[T] {
	return wordForm[T, V]{scalar[T, V]{at}, all, parseWord[V]}
}

// wordOrNumber is the form of the existing loxilb's enumerations, which users also write as
// numbers.
func wordOrNumber[T any, V enum](at func(*T) *V, all func() []choice[V]) form[T] {
	return wordForm[T, V]{scalar[T, V]{at}, all, parseWordOrNumber[V]}
}

func (w wordForm[T, V]) get(t *T) any                       { return (*w.at(t)).String() }
func (w wordForm[T, V]) number(t *T) int                    { return int(*w.at(t)) }
func (w wordForm[T, V]) set(t *T, f *Field[T], v any) error { return w.parse(t, f, v.(string)) }
func (w wordForm[T, V]) text(t *T) string                   { return (*w.at(t)).String() }
func (w wordForm[T, V]) parse(t *T, f *Field[T], s string) (err error) {
	*w.at(t), err = w.read(f.Name, s, w.all())
	return err
}

func (w wordForm[T, V]) choices() []Choice {
	var list []Choice
	for _, c := range w.all() {
		list = append(list, Choice{Word: c.word, Number: int(c.value), Help: c.help, Available: c.alternative == ""})
	}
	return list
}

// numberForm is a whole number from 0 to max.
type numberForm[T any, V ~uint8 | ~uint16 | ~uint32 | ~int] struct {
	scalar[T, V]
	max int
}

func number[T any, V ~uint8 | ~uint16 | ~uint32 | ~int](at func(*T) *V, largest int) form[T] {
	return numberForm[T, V]{scalar[T, V]{at}, largest}
}

func (i numberForm[T, V]) get(t *T) any     { return int(*i.at(t)) }
func (i numberForm[T, V]) text(t *T) string { return strconv.Itoa(int(*i.at(t))) }
func (i numberForm[T, V]) set(t *T, f *Field[T], v any) error {
	n := v.(int)
	if n < 0 || n > i.max {
		return NewFieldError(f.Name, strconv.Itoa(n), "is out of range", f.Allowed)
	}
	*i.at(t) = V(n)
	return nil
}

func (i numberForm[T, V]) parse(t *T, f *Field[T], s string) error {
	n, err := parseInt(f.Name, s, f.Allowed)
	if err != nil {
		return err
	}
	return i.set(t, f, n)
}

// markForm is a packet mark, decimal or hexadecimal.
type markForm[T any] struct{ numberForm[T, uint32] }

func mark[T any](at func(*T) *uint32) form[T] {
	return markForm[T]{numberForm[T, uint32]{scalar[T, uint32]{at}, 1<<32 - 1}}
}

func (m markForm[T]) parse(t *T, _ *Field[T], s string) (err error) {
	*m.at(t), err = ParseMark(s)
	return err
}

// secondsForm is a duration of whole seconds up to max: a number of seconds in JSON and in flags,
// such as 300s in text.
type secondsForm[T any] struct {
	scalar[T, time.Duration]
	max time.Duration
}

func seconds[T any](at func(*T) *time.Duration, longest time.Duration) form[T] {
	return secondsForm[T]{scalar[T, time.Duration]{at}, longest}
}

func (d secondsForm[T]) get(t *T) any     { return int(*d.at(t) / time.Second) }
func (d secondsForm[T]) text(t *T) string { return durationText(*d.at(t)) }
func (d secondsForm[T]) set(t *T, f *Field[T], v any) error {
	n, ok := v.(int)
	if !ok {
		return d.parseFlag(t, f, fmt.Sprint(v))
	}
	if n < 0 || n > int(d.max/time.Second) { // compare before the multiplication, which could overflow
		return NewFieldError(f.Name, strconv.Itoa(n), "is out of range", f.Allowed)
	}
	*d.at(t) = time.Duration(n) * time.Second
	return nil
}

func (d secondsForm[T]) parse(t *T, f *Field[T], s string) (err error) {
	if *d.at(t), err = ParseDuration(s); err != nil {
		return NewFieldError(f.Name, s, "is not a duration", "0s to 86400s, as in 300s")
	}
	return nil
}

func (d secondsForm[T]) parseFlag(t *T, f *Field[T], s string) error {
	if n, err := parseInt(f.Name, s, f.Allowed); err == nil {
		return d.set(t, f, n)
	}
	v, err := ParseDuration(s)
	switch {
	case err != nil:
		return NewFieldError(f.Name, s, "is not a duration", f.Allowed+", or as 60s or 1m")
	case v < 0 || v > d.max:
		return NewFieldError(f.Name, s, "is out of range", f.Allowed)
	case v%time.Second != 0:
		return NewFieldError(f.Name, s, "is not whole seconds", f.Allowed)
	}
	*d.at(t) = v
	return nil
}

// durationText writes whole seconds as 300s. Other durations, which Validate refuses, have Go's
// form.
func durationText(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}

// durationForm is a duration in Go's notation, such as 500ms, also in JSON; "" is 0.
type durationForm[T any] struct{ scalar[T, time.Duration] }

func duration[T any](at func(*T) *time.Duration) form[T] {
	return durationForm[T]{scalar[T, time.Duration]{at}}
}

func (d durationForm[T]) get(t *T) any { return d.text(t) }
func (d durationForm[T]) text(t *T) string {
	if *d.at(t) == 0 {
		return ""
	}
	return d.at(t).String()
}
func (d durationForm[T]) set(t *T, f *Field[T], v any) error { return d.parse(t, f, v.(string)) }
func (d durationForm[T]) parse(t *T, f *Field[T], s string) (err error) {
	if s == "" {
		*d.at(t) = 0
		return nil
	}
	if *d.at(t), err = ParseDuration(s); err != nil {
		return NewFieldError(f.Name, s, "is not a duration", "500ms, 2s, 1m, or a number of seconds")
	}
	return nil
}

// boolForm is true or false.
type boolForm[T any] struct{ scalar[T, bool] }

func boolean[T any](at func(*T) *bool) form[T] { return boolForm[T]{scalar[T, bool]{at}} }

func (b boolForm[T]) get(t *T) any     { return *b.at(t) }
func (b boolForm[T]) text(t *T) string { return strconv.FormatBool(*b.at(t)) }
func (b boolForm[T]) set(t *T, _ *Field[T], v any) error {
	*b.at(t) = v.(bool)
	return nil
}

func (b boolForm[T]) parse(t *T, f *Field[T], s string) error {
	if s != "true" && s != "false" {
		return NewFieldError(f.Name, s, "is not known", "true or false")
	}
	*b.at(t) = s == "true"
	return nil
}

// textForm is any text.
type textForm[T any] struct{ scalar[T, string] }

func text[T any](at func(*T) *string) form[T] { return textForm[T]{scalar[T, string]{at}} }

func (s textForm[T]) get(t *T) any                       { return *s.at(t) }
func (s textForm[T]) text(t *T) string                   { return *s.at(t) }
func (s textForm[T]) set(t *T, f *Field[T], v any) error { return s.parse(t, f, v.(string)) }
func (s textForm[T]) parse(t *T, _ *Field[T], v string) error {
	*s.at(t) = v
	return nil
}

// timeForm is a time in RFC 3339 format, UTC, in whole seconds.
type timeForm[T any] struct{ scalar[T, time.Time] }

func timestamp[T any](at func(*T) *time.Time) form[T] {
	return timeForm[T]{scalar[T, time.Time]{at}}
}

func (i timeForm[T]) get(t *T) any                       { return i.text(t) }
func (i timeForm[T]) set(t *T, f *Field[T], v any) error { return i.parse(t, f, v.(string)) }

func (i timeForm[T]) text(t *T) string {
	if i.at(t).IsZero() {
		return ""
	}
	return i.at(t).Format(time.RFC3339)
}

func (i timeForm[T]) parse(t *T, f *Field[T], s string) error {
	if s == "" {
		*i.at(t) = time.Time{}
		return nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return NewFieldError(f.Name, s, "is not a time", f.Allowed)
	}
	*i.at(t) = at.UTC().Truncate(time.Second)
	return nil
}

// addressForm is an IP address.
type addressForm[T any] struct{ scalar[T, netip.Addr] }

func address[T any](at func(*T) *netip.Addr) form[T] {
	return addressForm[T]{scalar[T, netip.Addr]{at}}
}

func (a addressForm[T]) get(t *T) any                       { return (*a.at(t)).String() }
func (a addressForm[T]) text(t *T) string                   { return (*a.at(t)).String() }
func (a addressForm[T]) set(t *T, f *Field[T], v any) error { return a.parse(t, f, v.(string)) }
func (a addressForm[T]) parse(t *T, f *Field[T], s string) (err error) {
	*a.at(t), err = ParseAddr(f.Name, s)
	return err
}

// prefixForm is a prefix; "" means none.
type prefixForm[T any] struct{ scalar[T, netip.Prefix] }

func prefix[T any](at func(*T) *netip.Prefix) form[T] {
	return prefixForm[T]{scalar[T, netip.Prefix]{at}}
}

func (p prefixForm[T]) get(t *T) any                       { return p.text(t) }
func (p prefixForm[T]) set(t *T, f *Field[T], v any) error { return p.parse(t, f, v.(string)) }

func (p prefixForm[T]) text(t *T) string {
	if at := *p.at(t); at.IsValid() {
		return at.String()
	}
	return ""
}

func (p prefixForm[T]) parse(t *T, f *Field[T], s string) (err error) {
	if s == "" {
		*p.at(t) = netip.Prefix{}
		return nil
	}
	if *p.at(t), err = netip.ParsePrefix(s); err != nil {
		return NewFieldError(f.Name, s, "is not a prefix", f.Allowed)
	}
	return nil
}

// listForm is a list of values. Nil and empty lists are the same.
type listForm[T any, V listed] struct {
	at   func(*T) *[]V
	read func(field string, text []string) ([]V, error)
}

// listed is the constraint for values in lists.
type listed interface {
	comparable
	fmt.Stringer
}

func listOf[T any, V listed](at func(*T) *[]V, read func(field string, text []string) ([]V, error)) form[T] {
	return listForm[T, V]{at, read}
}

func (m listForm[T, V]) zero(t *T) bool    { return len(*m.at(t)) == 0 }
func (m listForm[T, V]) same(a, b *T) bool { return slices.Equal(*m.at(a), *m.at(b)) }
func (m listForm[T, V]) copy(to, from *T)  { *m.at(to) = slices.Clone(*m.at(from)) }
func (m listForm[T, V]) text(t *T) string  { return strings.Join(m.words(t), ",") }
func (m listForm[T, V]) get(t *T) any      { return m.words(t) }

func (m listForm[T, V]) words(t *T) []string {
	list := *m.at(t)
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

func (m listForm[T, V]) set(t *T, f *Field[T], v any) (err error) {
	text := v.([]string)
	if len(text) == 0 {
		*m.at(t) = nil
		return nil
	}
	*m.at(t), err = m.read(cmp.Or(f.Also, f.Name), text)
	return err
}

func (m listForm[T, V]) parse(t *T, f *Field[T], s string) error {
	return m.set(t, f, strings.Split(s, ","))
}

// parseFlag parses "" as an empty list, and appends if the flag is repeated.
func (m listForm[T, V]) parseFlag(t *T, f *Field[T], s string) error {
	if s == "" {
		return nil
	}
	return m.set(t, f, append(m.words(t), strings.Split(s, ",")...))
}

func parseAddrs(field string, text []string) (list []netip.Addr, err error) {
	list = make([]netip.Addr, len(text))
	for i, s := range text {
		if list[i], err = ParseAddr(field, s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func parseEndpoints(_ string, text []string) (list []Endpoint, err error) {
	list = make([]Endpoint, len(text))
	for i, s := range text {
		if list[i], err = ParseEndpoint(s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// parseInt parses plain decimal digits without a leading zero.
func parseInt(field, s, allowed string) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, NewFieldError(field, s, "is out of range", allowed)
	case err != nil || s != strconv.Itoa(n):
		return 0, NewFieldError(field, s, "is not a plain number", allowed)
	}
	return n, nil
}

// ParseDuration parses a number of seconds (60), or a duration with units (500ms, 60s, 1m30s).
func ParseDuration(text string) (time.Duration, error) {
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	return time.ParseDuration(text)
}
