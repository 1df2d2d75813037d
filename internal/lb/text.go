package lb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// String writes the service on one line, as ParseService reads it:
//
//	10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.1.10:8080,192.168.1.11:8080:5 idle=300s name=web
func (s Service) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s mode=%s select=%s", s.Key, s.Mode, s.Algorithm)
	for i, e := range s.Endpoints {
		sep := ","
		if i == 0 {
			sep = " endpoints="
		}
		b.WriteString(sep + e.String())
	}
	for i, a := range s.Secondary {
		sep := ","
		if i == 0 {
			sep = " secips="
		}
		b.WriteString(sep + a.String())
	}
	if s.IdleTimeout != 0 {
		b.WriteString(" idle=" + idleString(s.IdleTimeout))
	}
	for i, p := range s.Sources {
		sep := ","
		if i == 0 {
			sep = " sources="
		}
		b.WriteString(sep + p.String())
	}
	if s.PersistTimeout != 0 {
		b.WriteString(" persist-timeout=" + idleString(s.PersistTimeout))
	}
	if s.PersistPrefix != 0 {
		b.WriteString(" persist-prefix=" + strconv.Itoa(int(s.PersistPrefix)))
	}
	for i, a := range s.SNAT {
		sep := ","
		if i == 0 {
			sep = " snat="
		}
		b.WriteString(sep + a.String())
	}
	if s.Refuse != RefuseReject {
		b.WriteString(" refuse=" + s.Refuse.String())
	}
	if s.Tunnel != TunnelNone {
		b.WriteString(" tunnel=" + s.Tunnel.String())
	}
	if s.MSS != 0 {
		b.WriteString(" mss=" + strconv.Itoa(int(s.MSS)))
	}
	if s.Egress {
		b.WriteString(" egress=true")
	}
	if s.Managed {
		b.WriteString(" managed=true")
	}
	if s.Name != "" {
		b.WriteString(" name=" + quoteName(s.Name))
	}
	return b.String()
}

// idleString writes whole seconds as 300s; what Validate refuses, as Go does.
func idleString(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}

// quoteName quotes a name that would not come back as one word.
func quoteName(name string) string {
	q := strconv.Quote(name)
	if len(q) == len(name)+2 && !strings.ContainsAny(name, " ") {
		return name
	}
	return q
}

// ParseService reads the line that Service.String writes. The key comes first, then fields in any order, each
// once; what is not written is zero. Endpoints are IP:PORT or IP:PORT:WEIGHT; weights=5,3,2 gives the weights
// aside instead. A value with spaces is quoted as in Go. It reads every value of the contract: whether this
// version does it, Validate says.
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
	weighted bool     // an endpoint carries its weight itself
	weights  []uint16 // of weights=
	list     string   // weights= as written
}

func (p *serviceParser) field(f string) (err error) {
	name, value, ok := strings.Cut(f, "=")
	if !ok {
		return NewFieldError(FieldService, f, "is not FIELD=VALUE", "")
	}
	if p.seen[name] {
		return NewFieldError(FieldService, f, "repeats a field", "")
	}
	p.seen[name] = true
	s := p.service
	switch name {
	case "mode":
		s.Mode, err = ParseMode(value)
	case "select":
		s.Algorithm, err = ParseAlgorithm(value)
	case "endpoints":
		err = p.endpoints(value)
	case "weights":
		err = p.parseWeights(value)
	case "idle":
		s.IdleTimeout, err = time.ParseDuration(value)
		if err != nil {
			err = NewFieldError(FieldIdleTimeout, value, "is not a duration", "0s to 86400s, as in 300s")
		}
	case "sources":
		s.Sources, err = ParseSources(strings.Split(value, ","))
	case "persist-timeout":
		s.PersistTimeout, err = time.ParseDuration(value)
		if err != nil {
			err = NewFieldError(FieldPersistTimeout, value, "is not a duration", "0s to 86400s, as in 300s")
		}
	case "persist-prefix":
		s.PersistPrefix, err = ParsePersistPrefix(value)
	case "secips":
		s.Secondary, err = ParseSecondary(strings.Split(value, ","))
	case "snat":
		s.SNAT, err = ParseSNAT(strings.Split(value, ","))
	case "refuse":
		s.Refuse, err = ParseRefusal(value)
	case "tunnel":
		s.Tunnel, err = ParseTunnel(value)
	case "mss":
		s.MSS, err = ParseMSS(value)
	case "egress":
		s.Egress, err = parseBool(FieldEgress, value)
	case "managed":
		s.Managed, err = parseBool(FieldManaged, value)
	case "name":
		s.Name = value
	default:
		err = NewFieldError(FieldService, f, "names no field of a service",
			"mode, select, endpoints, weights, secips, idle, sources, persist-timeout, persist-prefix, snat, refuse, tunnel, mss, egress, managed or name")
	}
	return err
}

func parseBool(field, value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, NewFieldError(field, value, "is not known", "true or false")
	}
	return value == "true", nil
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

// splitFields cuts a line at its blanks, and undoes the quotes of FIELD="a value".
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
			return nil, NewFieldError(FieldService, line, "goes on after a closing quote", "")
		}
		fields, line = append(fields, line[:end]+value), rest
	}
}

// Equal tells whether both are written the same: nil and empty endpoints are.
func (s Service) Equal(o Service) bool {
	return s.Key == o.Key && s.Name == o.Name && s.Mode == o.Mode && s.Algorithm == o.Algorithm &&
		s.IdleTimeout == o.IdleTimeout && s.Refuse == o.Refuse && s.Tunnel == o.Tunnel && s.MSS == o.MSS && s.PersistTimeout == o.PersistTimeout && s.PersistPrefix == o.PersistPrefix && s.Managed == o.Managed && s.Egress == o.Egress && slices.Equal(s.Endpoints, o.Endpoints) && slices.Equal(s.SNAT, o.SNAT) && slices.Equal(s.Secondary, o.Secondary) &&
		slices.Equal(s.Sources, o.Sources)
}

// Clone is a copy that shares nothing with s.
func (s Service) Clone() Service {
	s.Endpoints = slices.Clone(s.Endpoints)
	s.SNAT = slices.Clone(s.SNAT)
	s.Secondary = slices.Clone(s.Secondary)
	s.Sources = slices.Clone(s.Sources)
	return s
}
