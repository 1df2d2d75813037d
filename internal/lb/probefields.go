package lb

import (
	"strconv"
	"time"
)

// monitorFields returns the fields about probing the endpoints of a service.
func monitorFields() []Field[Service] {
	const first = 23 // place in a record
	list := []Field[Service]{
		{
			Name: FieldMonitor, Text: "monitor", Record: "monitor", Place: first, Since: monitorFormat,
			Property: "serviceArguments.monitor", Flag: "monitor",
			Help: "probe the endpoints, and send no new connections to those that are down",
			form: boolean(func(s *Service) *bool { return &s.Monitor }),
		},
		{
			Name: FieldAllDown, Text: "all-down", Record: "allDown", Place: first + 1, Since: monitorFormat,
			Property: "serviceArguments.allDown", Flag: "all-down",
			Help: "how to treat new connections while no endpoint is up",
			form: wordOfField(func(s *Service) *AllDown { return &s.AllDown }, allDowns),
		},
	}
	for i, f := range probeFields(func(s *Service) *Probe { return &s.Probe }) {
		f.Place, f.Since, f.Property = first+2+i, monitorFormat, "serviceArguments."+f.Property
		list = append(list, f)
	}
	return list
}

// monitorFormat is the first format of records with probes.
const monitorFormat = 4

// probeFields returns the fields of a T's probe, with the properties of a service's arguments.
func probeFields[T any](at func(*T) *Probe) []Field[T] {
	const counts = "0 (the default) to 100"
	return []Field[T]{
		{
			Name: FieldProbeType, Text: "probetype", Record: "probeType", Property: "probetype", Flag: "probetype",
			Help: "what a probe checks",
			form: wordOfField(func(t *T) *ProbeType { return &at(t).Type }, probeTypes),
		},
		{
			Name: FieldProbePort, Text: "probeport", Record: "probePort", Property: "probeport", Flag: "probeport",
			Help: "port to probe; 0 is the endpoint's own", Allowed: "0 (the endpoint's own) to 65535",
			form: number(func(t *T) *uint16 { return &at(t).Port }, 65535),
		},
		{
			Name: FieldProbeRequest, Text: "probereq", Record: "probeRequest", Property: "probereq", Flag: "probereq",
			Help: "request of a probe: path (http, https), service (grpc), name (dns) or bytes (tcp, udp)",
			form: line(func(t *T) *string { return &at(t).Request }),
		},
		{
			Name: FieldProbeResponse, Text: "proberesp", Record: "probeResponse", Property: "proberesp", Flag: "proberesp",
			Help: "text that the answer must contain",
			form: line(func(t *T) *string { return &at(t).Response }),
		},
		{
			Name: FieldProbeInterval, Text: "probe-interval", Record: "probeInterval", Property: "probeInterval", Flag: "probe-interval",
			Help: "interval between probes, such as 500ms or 10s (default 2s)",
			form: period(func(t *T) *time.Duration { return &at(t).Interval }),
		},
		{
			Name: FieldProbeWait, Text: "probe-wait", Record: "probeWait", Property: "probeWait", Flag: "probe-wait",
			Help: "timeout of a probe, at most --probe-interval (default: --probe-interval, at most 2s)",
			form: period(func(t *T) *time.Duration { return &at(t).Timeout }),
		},
		{
			Name: FieldProbeRetries, Text: "probe-retries", Record: "probeRetries", Property: "probeRetries", Flag: "probe-retries",
			Help: "consecutive failures before an endpoint is down; 0 is 3", Allowed: counts,
			form: number(func(t *T) *int { return &at(t).Fall }, maxProbeCount),
		},
		{
			Name: FieldProbeRise, Text: "probe-rise", Record: "probeRise", Property: "probeRise", Flag: "probe-rise",
			Help: "consecutive successes before an endpoint is up again; 0 is 2", Allowed: counts,
			form: number(func(t *T) *int { return &at(t).Rise }, maxProbeCount),
		},
		{
			Name: FieldProbeHost, Text: "probe-host", Record: "probeHost", Property: "probeHost", Flag: "probe-host",
			Help: "host name to request (http, https, grpc) and to verify in the certificate",
			form: line(func(t *T) *string { return &at(t).Host }),
		},
		{
			Name: FieldProbeStatuses, Also: FieldProbeStatus, Text: "probe-statuses", Record: "probeStatuses", Property: "probeStatuses",
			Flag: "probe-statuses", Help: "HTTP statuses that pass, such as 200-299,404 (default 200)",
			form: listOf(func(t *T) *[]StatusRange { return &at(t).Statuses }, parseStatuses),
		},
		{
			Name: FieldProbeCA, Text: "probe-ca", Record: "probeCA", Property: "probeCA", Flag: "probe-ca",
			Help: "CA certificates (PEM file in the folder of loxilb --probe-files) to verify https and grpc servers; without it they are not verified",
			form: line(func(t *T) *string { return &at(t).CA }),
		},
		{
			Name: FieldProbeCertificate, Text: "probe-cert", Record: "probeCertificate", Property: "probeCert", Flag: "probe-cert",
			Help: "client certificate for https and grpc (PEM file in the same folder)",
			form: line(func(t *T) *string { return &at(t).Certificate }),
		},
		{
			Name: FieldProbeKey, Text: "probe-key", Record: "probeKey", Property: "probeKey", Flag: "probe-key",
			Help: "private key of --probe-cert (PEM file in the same folder)",
			form: line(func(t *T) *string { return &at(t).Key }),
		},
	}
}

// spell is a duration as Go writes it, in JSON too: 500ms. Nothing is 0.
type spell[T any] struct{ scalar[T, time.Duration] }

func period[T any](at func(*T) *time.Duration) form[T] {
	return spell[T]{scalar[T, time.Duration]{at}}
}

func (d spell[T]) get(t *T) any { return d.text(t) }
func (d spell[T]) text(t *T) string {
	if *d.at(t) == 0 {
		return ""
	}
	return d.at(t).String()
}
func (d spell[T]) set(t *T, f *Field[T], v any) error { return d.parse(t, f, v.(string)) }
func (d spell[T]) parse(t *T, f *Field[T], s string) (err error) {
	if s == "" {
		*d.at(t) = 0
		return nil
	}
	if *d.at(t), err = ParseDuration(s); err != nil {
		return NewFieldError(f.Name, s, "is not a duration", "500ms, 2s, 1m, or a number of seconds")
	}
	return nil
}

// parseStatuses parses what StatusRange.String writes.
func parseStatuses(field string, text []string) (list []StatusRange, err error) {
	for _, s := range text {
		first, last, ranged := cutRange(s)
		if !ranged {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil {
			return nil, NewFieldError(field, s, "is not a status or a range of them", probeStatusesAllowed)
		}
		list = append(list, StatusRange{uint16(a), uint16(b)})
	}
	return list, nil
}
