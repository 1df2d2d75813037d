package lb

import (
	"strconv"
	"strings"
)

// String writes the service on one line, as ParseService reads it:
//
//	10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.1.10:8080,192.168.1.11:8080:5 idle=300s name=web
func (s Service) String() string {
	var b strings.Builder
	b.WriteString(s.Key.String())
	for _, f := range fields() {
		if f.IsDefault(&s) && (!f.Always || f.IsList()) {
			continue
		}
		b.WriteString(" " + f.Text + "=" + quote(f.form.text(&s)))
	}
	return b.String()
}

// quote quotes a value that would not be parsed as one word.
func quote(s string) string {
	q := strconv.Quote(s)
	if len(q) == len(s)+2 && !strings.ContainsAny(s, " ") {
		return s
	}
	return q
}

// ParseService parses the line that Service.String writes. The key comes first, then each field at
// most once, in any order; missing fields are zero. Endpoints are IP:PORT or IP:PORT:WEIGHT;
// alternatively weights=5,3,2 has the weights. A value with spaces is quoted as in Go. It accepts
// every value of the existing loxilb: Validate reports those that this version does not support.
func ParseService(line string) (Service, error) {
	fields, err := splitFields(line)
	if err != nil {
		return Service{}, err
	}
	if len(fields) == 0 {
		return Service{}, NewFieldError(FieldService, line, "is empty", "IP:PORT/PROTOCOL FIELD=VALUE ...")
	}
	s := Service{}
	if s.Key, err = ParseKey(fields[0]); err != nil {
		return Service{}, err
	}
	p := serviceParser{service: &s, seen: make(map[string]bool)}
	for _, f := range fields[1:] {
		if err := p.field(f); err != nil {
			return Service{}, err
		}
	}
	if err := p.applyWeights(); err != nil {
		return Service{}, err
	}
	return s, nil
}

// serviceParser is the state of one ParseService.
type serviceParser struct {
	service  *Service
	seen     map[string]bool
	weighted bool     // endpoints= has a weight
	weights  []uint16 // the values of weights=
	list     string   // the text of weights=
}

func (p *serviceParser) field(f string) error {
	name, value, ok := strings.Cut(f, "=")
	if !ok {
		return NewFieldError(FieldService, f, "is not FIELD=VALUE", "")
	}
	if p.seen[name] {
		return NewFieldError(FieldService, f, "repeats a field", "")
	}
	p.seen[name] = true
	switch name {
	case "endpoints":
		return p.endpoints(value)
	case "weights":
		return p.parseWeights(value)
	}
	for _, known := range fields() {
		if known.Text == name {
			return known.form.parse(p.service, &known, value)
		}
	}
	return NewFieldError(FieldService, f, "names no field of a service", list(textNames()))
}

// textNames returns the names of fields in a service's text.
func textNames() []string {
	var names []string
	for _, f := range fields() {
		names = append(names, f.Text)
		if f.Text == "endpoints" {
			names = append(names, "weights")
		}
	}
	return names
}

func (p *serviceParser) endpoints(value string) error {
	for one := range strings.SplitSeq(value, ",") {
		e, weighted, err := parseEndpoint(one)
		if err != nil {
			return err
		}
		p.weighted = p.weighted || weighted
		p.service.Endpoints = append(p.service.Endpoints, e)
	}
	return nil
}

func (p *serviceParser) parseWeights(value string) error {
	p.list = value
	for one := range strings.SplitSeq(value, ",") {
		w, err := ParseWeight(one)
		if err != nil {
			return err
		}
		p.weights = append(p.weights, w)
	}
	return nil
}

// applyWeights comes last, since weights= may be written before endpoints=.
func (p *serviceParser) applyWeights() error {
	switch {
	case p.weights == nil:
		return nil
	case p.weighted:
		return NewFieldError("weights", p.list, "is given twice", "in endpoints= or in weights=")
	case len(p.weights) != len(p.service.Endpoints):
		return NewFieldError("weights", p.list, "is not one for each endpoint",
			strconv.Itoa(len(p.service.Endpoints))+" weights")
	}
	for i, w := range p.weights {
		p.service.Endpoints[i].Weight = w
	}
	return nil
}

// splitFields splits a line at its blanks, and removes the quotes of FIELD="a value".
func splitFields(line string) ([]string, error) {
	var fields []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return fields, nil
		}
		end := strings.IndexAny(line, " \t\"")
		if end < 0 {
			return append(fields, line), nil
		}
		if line[end] != '"' {
			fields, line = append(fields, line[:end]), line[end:]
			continue
		}
		quoted, err := strconv.QuotedPrefix(line[end:])
		if err != nil {
			return nil, NewFieldError(FieldService, line, "has an open quote", "")
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, NewFieldError(FieldService, line, "has a bad quote", "")
		}
		rest := line[end+len(quoted):]
		if rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			return nil, NewFieldError(FieldService, line, "continues after a closing quote", "")
		}
		fields, line = append(fields, line[:end]+value), rest
	}
}
