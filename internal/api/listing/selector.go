package listing

import (
	"fmt"
	"slices"
	"strings"
)

// Selector selects the objects that meet all of its requirements. An empty Selector selects all.
type Selector []Requirement

// Requirement is a condition of a selector.
type Requirement struct {
	Field  string
	Not    bool     // it must not hold
	Prefix bool     // the values are prefixes of the field
	Values []string // the field has one of them; none: it has any value
}

// Limits of a selector: each object of a list is compared with each requirement and value.
const (
	maxRequirements = 32
	maxValues       = 1000 // of all requirements
)

// ParseSelector parses requirements separated by commas: a=b, a!=b, a^=b (it begins with b), a
// in (b,c), a notin (b,c), a (it is not empty), !a. A value that contains a comma, parentheses or
// quotes is in quotes.
func ParseSelector(text string) (s Selector, err error) {
	values := 0
	for _, part := range split(text) {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		r, err := parseRequirement(part)
		if err != nil {
			return nil, err
		}
		if values += len(r.Values); len(s) == maxRequirements || values > maxValues {
			return nil, fmt.Errorf("a selector has at most %d requirements, and %d values", maxRequirements, maxValues)
		}
		s = append(s, r)
	}
	return s, nil
}

func parseRequirement(text string) (r Requirement, err error) {
	wrong := fmt.Errorf("selector %q is not valid (allowed: FIELD=VALUE, FIELD!=VALUE, FIELD^=BEGINNING, FIELD in (A,B), FIELD notin (A,B), FIELD and !FIELD)", text)
	if list, ok := strings.CutSuffix(text, ")"); ok {
		head, values, found := strings.Cut(list, "(")
		words := strings.Fields(head)
		if !found || len(words) != 2 || words[1] != "in" && words[1] != "notin" {
			return r, wrong
		}
		r.Field, r.Not = words[0], words[1] == "notin"
		r.Values, err = SplitNames(values)
		return r, err
	}
	field, value, given := strings.Cut(text, "=")
	switch {
	case !given:
		r.Field, r.Not = strings.CutPrefix(text, "!")
	case strings.HasSuffix(field, "!"):
		r.Field, r.Not = strings.TrimSuffix(field, "!"), true
	case strings.HasSuffix(field, "^"):
		r.Field, r.Prefix = strings.TrimSuffix(field, "^"), true
	default:
		r.Field, value = field, strings.TrimPrefix(value, "=")
	}
	if r.Field = strings.TrimSpace(r.Field); r.Field == "" || strings.ContainsAny(r.Field, " ()!^") {
		return r, wrong
	}
	if !given {
		return r, nil
	}
	if value, err = unquoted(value); err != nil {
		return r, err
	}
	r.Values = []string{value}
	return r, nil
}

// String returns the selector in ParseSelector's syntax.
func (s Selector) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		parts[i] = r.String()
	}
	return strings.Join(parts, ",")
}

// String returns the requirement as written.
func (r Requirement) String() string {
	word := map[bool]string{false: " in (", true: " notin ("}[r.Not]
	switch {
	case len(r.Values) == 0 && r.Not:
		return "!" + r.Field
	case len(r.Values) == 0:
		return r.Field
	case r.Prefix:
		return r.Field + "^=" + quoted(r.Values[0])
	}
	return r.Field + word + JoinNames(r.Values) + ")"
}

// Matches reports whether the selector matches an object. values returns the values of a field,
// several for a list.
func (s Selector) Matches(values func(field string) []string) bool {
	for i := range s {
		if !s[i].matches(values(s[i].Field)) {
			return false
		}
	}
	return true
}

// MayMatch reports whether an object may match, given only some of its values.
func (s Selector) MayMatch(values func(field string) (list []string, known bool)) bool {
	for i := range s {
		if list, known := values(s[i].Field); known && !s[i].matches(list) {
			return false
		}
	}
	return true
}

// OneOf returns the values that the selector allows for a field, if it restricts the field.
func (s Selector) OneOf(field string) (values []string, given bool) {
	for i := range s {
		if r := &s[i]; r.Field == field && !r.Not && !r.Prefix && len(r.Values) > 0 && !slices.ContainsFunc(r.Values, isUnset) {
			return r.Values, true
		}
	}
	return nil, false
}

func (r *Requirement) matches(values []string) bool {
	found := false
	switch {
	case len(r.Values) == 0:
		found = slices.ContainsFunc(values, func(v string) bool { return !isUnset(v) })
	case r.Prefix:
		found = slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, r.Values[0]) })
	case len(values) == 0: // missing is the same as empty
		found = slices.ContainsFunc(r.Values, isUnset)
	default:
		found = slices.ContainsFunc(values, func(v string) bool {
			return slices.ContainsFunc(r.Values, func(want string) bool { return want == v || isUnset(want) && isUnset(v) })
		})
	}
	return found != r.Not
}

// isUnset reports whether a value is that of an unset field, which answers may omit.
func isUnset(v string) bool { return v == "" || v == "0" || v == "false" }
