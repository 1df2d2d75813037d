package lb

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A record is a service in the journal: a JSON object of words, numbers and lists, independent of
// machine and version.
//
//	{"service":"10.0.0.1:80/tcp","mode":"default","select":"rr","endpoints":["192.168.1.10:8080"]}
//
// Members with default values are omitted, so older builds can read a service without new
// features.

// RecordFormat returns the newest record format that this build reads. A later field uses the next
// number as its Since: services without it stay readable for older builds.
func (c *Schema) RecordFormat() int {
	format := modesFormat
	for _, f := range c.fields {
		format = max(format, f.Since)
	}
	return format
}

// firstRecordFormat is the format of records before formats were counted.
const firstRecordFormat = 2

// MarshalRecord writes a service, and returns the lowest format that can express it.
func (c *Schema) MarshalRecord(s Service) (format int, data []byte, err error) {
	format = firstRecordFormat
	for i := range c.fields {
		if f := &c.fields[i]; f.Since > format && !f.IsDefault(&s) {
			format = f.Since
		}
	}
	format = max(format, endpointsFormat(s.Endpoints), s.requiredFormat())
	data, err = marshalMembers(&s, c.fields, &member{"service", s.Key.String(), 0})
	return format, data, err
}

// marshalMembers writes the fields of t that differ from their default. first, which may be nil,
// precedes them.
func marshalMembers[T any](t *T, fields []Field[T], first *member) (data []byte, err error) {
	members := make([]member, 0, 24)
	if first != nil {
		members = append(members, *first)
	}
	for i := range fields {
		if f := &fields[i]; f.Always || !f.IsDefault(t) {
			members = append(members, member{f.Record, f.form.get(t), f.Position})
		}
	}
	slices.SortStableFunc(members, func(a, b member) int { return a.position - b.position })
	data = make([]byte, 0, 512)
	for i, m := range members {
		data = append(append(append(data, "{,"[min(i, 1)], '"'), m.name...), `":`...)
		if data, err = appendJSON(data, m.value); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return append(data, '}'), nil
}

// appendJSON writes like json.Marshal, but takes a third of the time for the values of records:
// restarts and snapshots of all services wait for it.
func appendJSON(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case []string:
		b = append(b, '[')
		for i, s := range v {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSON(b, s); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case string:
		if needsNoEscape(v) {
			return append(append(append(b, '"'), v...), '"'), nil
		}
	}
	text, err := json.Marshal(value)
	return append(b, text...), err
}

// needsNoEscape reports whether JSON represents a text without escapes.
func needsNoEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

type member struct {
	name     string
	value    any
	position int
}

// UnmarshalRecord parses what MarshalRecord wrote, and validates it. It refuses unknown members and
// words, and ignores the member "owner", which older builds wrote.
func (c *Schema) UnmarshalRecord(format int, data []byte) (Service, error) {
	if newest := c.RecordFormat(); format > newest {
		return Service{}, fmt.Errorf("format %d of a service is newer than %d", format, newest)
	}
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		return Service{}, err
	}
	s, err := c.serviceOf(members)
	if err != nil {
		return Service{}, err
	}
	return s, s.Validate()
}

// serviceOf reads the members, and refuses unknown ones.
func (c *Schema) serviceOf(members map[string]any) (s Service, err error) {
	key, ok := members["service"].(string)
	if !ok {
		return s, errors.New("service is not a string")
	}
	if s.Key, err = ParseKey(key); err != nil {
		return s, err
	}
	return s, setMembers(&s, c.fields, members, "service", "owner")
}

// unmarshalMembers is the inverse of marshalMembers without a first member.
func unmarshalMembers[T any](t *T, fields []Field[T], data []byte) error {
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	return setMembers(t, fields, members)
}

// setMembers sets the fields from members, and refuses unknown members.
func setMembers[T any](t *T, fields []Field[T], members map[string]any, others ...string) error {
	left := len(members)
	for _, name := range others {
		if _, ok := members[name]; ok {
			left--
		}
	}
	for i := range fields {
		f := &fields[i]
		v, ok := members[f.Record]
		if !ok {
			continue
		}
		left--
		value, ok := convert(f.form.get(t), v)
		if !ok {
			return fmt.Errorf("%s is of the wrong type", f.Record)
		}
		if err := f.SetValue(t, value); err != nil {
			return err
		}
	}
	if left > 0 {
		return fmt.Errorf("unknown member %s", list(unknownMembers(members, fields, others)))
	}
	return nil
}

func unknownMembers[T any](members map[string]any, fields []Field[T], others []string) []string {
	var names []string
	for name := range members {
		known := func(f Field[T]) bool { return f.Record == name }
		if !slices.Contains(others, name) && !slices.ContainsFunc(fields, known) {
			names = append(names, fmt.Sprintf("%q", name))
		}
	}
	slices.Sort(names)
	return names
}

// convert converts a decoded JSON value to the type of sample.
func convert(sample, v any) (any, bool) {
	switch sample.(type) {
	case int:
		n, ok := v.(float64)
		return int(n), ok && n == math.Trunc(n) && math.Abs(n) < 1<<53
	case []string:
		list, ok := v.([]any)
		out := make([]string, len(list))
		for i := range list {
			if out[i], ok = list[i].(string); !ok {
				return nil, false
			}
		}
		return out, ok
	case bool:
		_, ok := v.(bool)
		return v, ok
	}
	_, ok := v.(string)
	return v, ok
}

// contractFormat is the first record format with two features that the existing loxilb's clients
// need and earlier builds refused: the member bgp, and certain services.
const contractFormat = closingFormat + 2

// requiredFormat returns the first record format whose builds accept the service's mode, name and
// endpoints.
func (s *Service) requiredFormat() int {
	later := s.egressByRules() || utf8.RuneCountInString(s.Name) > firstNameLength || s.Mode.TranslatesSource() && !s.Protocol.HasPorts()
	if s.Mode == ModeFullNAT && len(s.SNAT) == 0 {
		for _, e := range s.Endpoints {
			later = later || s.Translates(e)
		}
	}
	switch {
	case s.Mode == ModeAuto:
		return modesFormat
	case later:
		return contractFormat
	}
	return firstRecordFormat
}

// modesFormat is the first record format with ModeAuto.
const modesFormat = announcementFormat + 1

// firstNameLength is the former limit of names.
const firstNameLength = 128
