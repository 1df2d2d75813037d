package services

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// codec converts entries of the API to services and back, driven by the fields of lb. It is made
// once, since that takes as long as several requests, and is safe for concurrent use.
type codec struct {
	key         []property[lb.Service, v1.LoadbalanceEntry]
	probe       []property[lb.EndpointProbe, v1.EndpointProbe]
	fields      []property[lb.Service, v1.LoadbalanceEntry] // without the endpoints, which have their own fields
	endpoint    []property[lb.Endpoint, v1.Endpoint]
	keyAlone    []property[lb.Service, v1.ServiceKey]
	unavailable compat.Unavailable
	hideNative  bool // answer as the existing loxilb does
}

// property is a field of lb, and its property in an object of the API.
type property[T, O any] struct {
	lb.Field[T]
	at v1.Property[O]
}

func newCodec(hideNative bool) *codec {
	entry := v1.PropertiesOf[v1.LoadbalanceEntry]()
	fields := slices.DeleteFunc(lb.Fields(), func(f lb.Field[lb.Service]) bool { return f.Name == lb.FieldEndpoints })
	return &codec{
		hideNative: hideNative,
		key:        properties(lb.KeyFields(), entry, same), fields: properties(fields, entry, same),
		endpoint:    properties(lb.EndpointFields(), v1.PropertiesOf[v1.Endpoint](), same),
		probe:       properties(lb.EndpointProbeFields(), v1.PropertiesOf[v1.EndpointProbe](), same),
		keyAlone:    properties(lb.KeyFields(), v1.PropertiesOf[v1.ServiceKey](), keyProperty),
		unavailable: compat.NewUnavailable(entry),
	}
}

// properties finds the properties of fields in an object; name returns a field's property.
func properties[T, O any](fields []lb.Field[T], in v1.Properties[O], name func(string) string) []property[T, O] {
	list := make([]property[T, O], len(fields))
	for i, f := range fields {
		list[i] = property[T, O]{f, in.Of(name(f.Property))}
	}
	return list
}

// set sets the fields of t from the properties of an object.
func set[T, O any](t *T, fields []property[T, O], object *O) error {
	for i := range fields {
		f := &fields[i]
		if !f.Required && !f.at.Given(object) {
			continue
		}
		value, _ := f.at.Get(object)
		if value == nil {
			return lb.NewFieldError(f.Name, "", "is missing", f.Allowed)
		}
		if err := f.SetValue(t, value); err != nil {
			return err
		}
	}
	return nil
}

// get writes the fields of t that have another value than their default.
func get[T, O any](object *O, fields []property[T, O], t *T) {
	for i := range fields {
		if f := &fields[i]; f.Required || !f.IsDefault(t) {
			f.at.Set(object, f.Value(t))
		}
	}
}

func same(property string) string { return property }

// service turns an entry into a service. lb validates it here if the entry replaces a service;
// otherwise put validates the service that the entry changes. at is a prefix for the names of
// properties.
func (c *codec) service(at string, e *v1.LoadbalanceEntry) (s lb.Service, p *rest.Problem) {
	if p := c.unavailable.Refuse(at, e); p != nil {
		return s, p
	}
	err := aliases(&e.ServiceArguments)
	if err == nil {
		err = set(&s, c.key, e)
	}
	if err == nil {
		err = set(&s, c.fields, e)
	}
	if err != nil {
		return s, entryProblem(at, -1, err)
	}
	if err := onePort(&s.Key); err != nil {
		return s, entryProblem(at, -1, err)
	}
	s.Endpoints = make([]lb.Endpoint, len(e.Endpoints))
	for i := range e.Endpoints {
		if err := set(&s.Endpoints[i], c.endpoint, &e.Endpoints[i]); err != nil {
			return s, entryProblem(at, i, err)
		}
	}
	if p := privateIP(at, e.ServiceArguments.PrivateIP, &s); p != nil {
		return s, p
	}
	if oper(e.ServiceArguments.Oper) != operReplace {
		return s, nil
	}
	if err := s.Validate(); err != nil {
		return s, entryProblem(at, c.refusedEndpoint(&s, err), err)
	}
	return s, nil
}

// serviceKey reads a key that stands alone.
func (c *codec) serviceKey(at string, k *v1.ServiceKey) (lb.Key, *rest.Problem) {
	if p := compat.RefuseHost(at+"host", k.Host); p != nil {
		return lb.Key{}, p
	}
	var s lb.Service
	err := set(&s, c.keyAlone, k)
	if err == nil {
		err = onePort(&s.Key)
	}
	if err == nil {
		err = s.Key.Validate()
	}
	var fe *lb.FieldError
	if errors.As(err, &fe) {
		return lb.Key{}, rest.RefuseError(http.StatusBadRequest, rest.Renamed(at+keyProperty(PropertyOf(fe.Field, -1)), fe))
	}
	return s.Key, nil
}

// keyProperty returns a ServiceKey's name for a property of the arguments.
func keyProperty(property string) string { return strings.TrimPrefix(property, "serviceArguments.") }

// onePort shortens 80-80 to 80, and refuses an end below the first port.
func onePort(k *lb.Key) error {
	switch {
	case k.PortMax == k.Port:
		k.PortMax = 0
	case k.PortMax != 0 && k.PortMax < k.Port:
		return lb.NewFieldError(lb.FieldPortMax, strconv.Itoa(int(k.PortMax)), "is below the first port, "+strconv.Itoa(int(k.Port)), "0 (one port), or above the first")
	}
	return nil
}

// aliases moves the values of a property's other names to the property.
func aliases(a *v1.ServiceArguments) error {
	if a.Select != "" {
		other, err := lb.ParseAlgorithm(string(a.Select))
		if err != nil {
			return err
		}
		if a.Sel != "" {
			if sel, err := lb.ParseAlgorithm(string(a.Sel)); err != nil || sel != other {
				return lb.NewFieldError(lb.FieldSelect, string(a.Select), "differs from sel", "sel or select")
			}
		}
		a.Sel = a.Select
	}
	var err error
	a.ProbeInterval, err = intervalOf(a.ProbeInterval, a.ProbeTimeout)
	return err
}

// intervalOf returns the interval of probes from the existing loxilb's property, in whole seconds;
// 0: unset.
func intervalOf(interval v1.Duration, seconds v1.Seconds) (v1.Duration, error) {
	switch {
	case seconds < 0 || seconds > 86400:
		return "", lb.NewFieldError(fieldPeriod, seconds.String(), "is out of range", "0 (the default) to 86400 seconds")
	case interval != "" || seconds == 0:
		return interval, nil
	}
	return v1.Duration(seconds.String() + "s"), nil
}

// secondsOf returns an interval in whole seconds, rounded up, for the existing loxilb's property.
func secondsOf(interval time.Duration) int { return int((interval + time.Second - 1) / time.Second) }

// fieldPeriod is the existing loxilb's name for the interval of probes, which propertyOf knows.
const fieldPeriod = "probe period"

// answer returns a service in a form that can be posted again. endpoints are the health of its
// endpoints, states the resulting states.
func (c *codec) answer(s *lb.Service, stats *report.ServiceStats, endpoints []servicestate.Endpoint, states *servicestate.Service) *v1.LoadbalanceEntry {
	e := &v1.LoadbalanceEntry{Endpoints: make([]v1.Endpoint, len(s.Endpoints))}
	get(e, c.key, s)
	get(e, c.fields, s)
	for i := range s.Endpoints {
		var t report.EndpointStats
		if i < len(stats.Endpoints) {
			t = stats.Endpoints[i]
		}
		get(&e.Endpoints[i], c.endpoint, &s.Endpoints[i])
		e.Endpoints[i].Counter = counter(t)
		e.Endpoints[i].ActiveConnections, e.Endpoints[i].InactiveConnections, e.Endpoints[i].Refused = t.Active, t.Inactive, t.Refusals.Sum()
		if i < len(stats.Endpoints) {
			e.Endpoints[i].Source = sourceWord(s, &s.Endpoints[i], t.Source)
		}
		e.Endpoints[i].Standby = s.Endpoints[i].Backup > 0 && !t.Available
		e.Endpoints[i].Drained = endpoints[i].Drained
		e.Endpoints[i].Panic = states.Endpoints[i] == servicestate.Panic
		e.Endpoints[i].ObservedState = string(states.Endpoints[i])
		e.Endpoints[i].State = compat.EndpointState(s, &s.Endpoints[i], &endpoints[i])
		if s.SlowStart > 0 && t.Share > 0 && t.Share < 1 {
			e.Endpoints[i].Share = int(math.Round(100 * t.Share))
		}
	}
	e.ObservedState = string(states.State)
	e.Refused = stats.Refusals.Sum()
	if c.hideNative {
		compat.HideNative(e)
	}
	return e
}

// sourceWord returns the source that an endpoint of a service in mode auto sees. applied is the
// data path's source, as in report.EndpointStats.
func sourceWord(s *lb.Service, e *lb.Endpoint, applied string) string {
	switch {
	case s.Mode != lb.ModeAuto:
		return ""
	case applied == "":
		return "client"
	case len(s.SNAT) > 0:
		var words []string
		for _, a := range s.SNAT {
			if a.Is4() == e.Addr.Is4() {
				words = append(words, a.String())
			}
		}
		return strings.Join(words, ",")
	}
	return applied
}

// PropertyOf returns the API's name for a field of lb. endpoint is the index of an endpoint, or -1.
func PropertyOf(field string, endpoint int) string {
	if field == fieldPeriod {
		return "serviceArguments.probeTimeout"
	}
	for _, f := range append(lb.KeyFields(), lb.Fields()...) {
		if (field == f.Name || field == f.Also) && field != lb.FieldEndpoint && field != lb.FieldEndpoints {
			return f.Property
		}
	}
	list := "endpoints"
	if endpoint >= 0 {
		list = fmt.Sprintf("endpoints[%d]", endpoint)
	}
	for _, f := range lb.EndpointFields() {
		if field == f.Name {
			return list + "." + f.Property
		}
	}
	if field == lb.FieldEndpoint || field == lb.FieldEndpoints {
		return list
	}
	return field
}

// refusedEndpoint returns the index of the endpoint that validation refused: the last one with the
// error's value, as validation refuses the second of two equal endpoints. It returns -1 if the
// error does not concern an endpoint.
func (c *codec) refusedEndpoint(s *lb.Service, err error) int {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return -1
	}
	for i := len(s.Endpoints) - 1; i >= 0; i-- {
		e := &s.Endpoints[i]
		if fe.Field == lb.FieldEndpoint && fe.Value == e.AddrPort().String() {
			return i
		}
		for j := range c.endpoint {
			if f := &c.endpoint[j]; fe.Field == f.Name && fe.Value == f.Show(e) {
				return i
			}
		}
	}
	return -1
}

// entryProblem converts an error's field to the API's name. endpoint is the index of the refused
// endpoint, or -1.
func entryProblem(at string, endpoint int, err error) *rest.Problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return rest.Refuse(http.StatusBadRequest, "%s%v", at, err)
	}
	return rest.RefuseError(http.StatusBadRequest, rest.Renamed(at+PropertyOf(fe.Field, endpoint), fe))
}
