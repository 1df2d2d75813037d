package lb

import (
	"strconv"
	"time"
)

// monitorFields say whether and how the endpoints of a service are probed.
func monitorFields() []Field[Service] {
	const first = 23 // place in a record
	list := []Field[Service]{
		{
			Name: FieldMonitor, Text: "monitor", Record: "monitor", Place: first, Since: monitorFormat,
			Property: "serviceArguments.monitor", Flag: "monitor",
			Help: "probe the endpoints: those that are down take no new connection",
			form: boolean(func(s *Service) *bool { return &s.Monitor }),
		},
		{
			Name: FieldAllDown, Text: "all-down", Record: "allDown", Place: first + 1, Since: monitorFormat,
			Property: "serviceArguments.allDown", Flag: "all-down",
			Help: "what becomes of new connections while no endpoint is up",
			form: wordOfField(func(s *Service) *AllDown { return &s.AllDown }, ParseAllDown, allDowns),
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

// probeFields are those of a probe that a T has, with the properties that a service's arguments have for them.
func probeFields[T any](at func(*T) *Probe) []Field[T] {
	const counts = "0 (the default) to 100"
	return []Field[T]{
		{
			Name: FieldProbeType, Text: "probetype", Record: "probeType", Property: "probetype", Flag: "probetype",
			Help: "what a probe asks of an endpoint",
			form: wordOfField(func(t *T) *ProbeType { return &at(t).Type }, ParseProbeType, probeTypes),
		},
		{
			Name: FieldProbePort, Text: "probeport", Record: "probePort", Property: "probeport", Flag: "probeport",
			Help: "port that is probed; 0 is the endpoint's own", Allowed: "0 (the endpoint's own) to 65535",
			form: number(func(t *T) *uint16 { return &at(t).Port }, 65535),
		},
		{
			Name: FieldProbeRequest, Text: "probereq", Record: "probeRequest", Property: "probereq", Flag: "probereq",
			Help: "what a probe sends: the path of http and https, the service of grpc, the name of dns, the bytes of tcp and udp",
			form: line(func(t *T) *string { return &at(t).Request }),
		},
		{
			Name: FieldProbeResponse, Text: "proberesp", Record: "probeResponse", Property: "proberesp", Flag: "proberesp",
			Help: "what the answer must have in it",
			form: line(func(t *T) *string { return &at(t).Response }),
		},
		{
			Name: FieldProbeInterval, Text: "probe-interval", Record: "probeInterval", Property: "probeInterval", Flag: "probe-interval",
			Help: "time from probe to probe, as 500ms or 10s; nothing is 2s",
			form: period(func(t *T) *time.Duration { return &at(t).Interval }),
		},
		{
			Name: FieldProbeWait, Text: "probe-wait", Record: "probeWait", Property: "probeWait", Flag: "probe-wait",
			Help: "how long a probe waits for its answer, at most --probe-interval; nothing is that, or 2s if it is longer",
			form: period(func(t *T) *time.Duration { return &at(t).Timeout }),
		},
		{
			Name: FieldProbeRetries, Text: "probe-retries", Record: "probeRetries", Property: "probeRetries", Flag: "probe-retries",
			Help: "failures in a row that make an endpoint be down; 0 is 3", Allowed: counts,
			form: number(func(t *T) *int { return &at(t).Fall }, maxProbeCount),
		},
		{
			Name: FieldProbeRise, Text: "probe-rise", Record: "probeRise", Property: "probeRise", Flag: "probe-rise",
			Help: "successes in a row that make it be up again; 0 is 2", Allowed: counts,
			form: number(func(t *T) *int { return &at(t).Rise }, maxProbeCount),
		},
		{
			Name: FieldProbeHost, Text: "probe-host", Record: "probeHost", Property: "probeHost", Flag: "probe-host",
			Help: "host that http, https and grpc ask for, and that the certificate must be for",
			form: line(func(t *T) *string { return &at(t).Host }),
		},
		{
			Name: FieldProbeStatuses, Also: FieldProbeStatus, Text: "probe-statuses", Record: "probeStatuses", Property: "probeStatuses",
			Flag: "probe-statuses", Help: "statuses of http and https that are good, as 200-299,404; none is 200",
			form: listOf(func(t *T) *[]StatusRange { return &at(t).Statuses }, parseStatuses),
		},
		{
			Name: FieldProbeCA, Text: "probe-ca", Record: "probeCA", Property: "probeCA", Flag: "probe-ca",
			Help: "file (PEM, in /etc/loxilb/probes or where loxilb --probe-files says) of who may have signed the certificate of https or grpc; none: it is not verified",
			form: line(func(t *T) *string { return &at(t).CA }),
		},
		{
			Name: FieldProbeCertificate, Text: "probe-cert", Record: "probeCertificate", Property: "probeCert", Flag: "probe-cert",
			Help: "file (PEM, at the same place) of the certificate that https or grpc shows",
			form: line(func(t *T) *string { return &at(t).Certificate }),
		},
		{
			Name: FieldProbeKey, Text: "probe-key", Record: "probeKey", Property: "probeKey", Flag: "probe-key",
			Help: "file (PEM, at the same place) of the key of --probe-cert",
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

// parseStatuses reads what StatusRange.String writes.
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
