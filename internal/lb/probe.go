package lb

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProbeType is the type of a probe.
type ProbeType uint8

// The types.
const (
	ProbeAuto  ProbeType = iota // not specified: Service.ProbeOf derives it from the protocol
	ProbeNone                   // no probe: the endpoint counts as up
	ProbePing                   // an answer to ICMP echo
	ProbeTCP                    // an accepted connection; with Request, an answer that contains Response
	ProbeUDP                    // an answer that contains Response; without Response, no ICMP port unreachable
	ProbeHTTP                   // a status in Statuses, and a body that contains Response
	ProbeHTTPS                  // HTTP over TLS
	ProbeGRPC                   // SERVING from grpc.health.v1; Request is the name of the service
	ProbeDNS                    // an answer without error to a query for the name Request; with Response, one that contains this address
	ProbeSCTP                   // an accepted association: INIT ACK
)

func probeTypes() []choice[ProbeType] {
	return []choice[ProbeType]{
		{value: ProbeAuto, word: "auto", help: "tcp, udp, sctp or ping, following the service's protocol"},
		{value: ProbeTCP, word: "tcp", help: "the endpoint accepts a connection, and answers --probereq with --proberesp if given"},
		{value: ProbeUDP, word: "udp", help: "it answers --probereq with --proberesp; without --proberesp it only must not refuse the datagram"},
		{value: ProbeSCTP, word: "sctp", help: "it accepts an association"},
		{value: ProbePing, word: "ping", help: "it answers an echo request"},
		{value: ProbeHTTP, word: "http", help: "GET of the path --probereq returns one of --probe-statuses, and --proberesp in the body"},
		{value: ProbeHTTPS, word: "https", help: "like http, over TLS"},
		{value: ProbeGRPC, word: "grpc", help: "grpc.health.v1 reports SERVING for the service --probereq, over TLS with --probe-ca or --probe-cert"},
		{value: ProbeDNS, word: "dns", help: "it resolves the name --probereq, to the address --proberesp if given"},
		{value: ProbeNone, word: "none", help: "no probe: the endpoint is up until POST config/endpointhoststate reports otherwise"},
	}
}

// String returns the word of flags, JSON and text.
func (t ProbeType) String() string { return wordOf("probe type", t, probeTypes()) }

// ParseProbeType parses the word; "" means auto.
func ParseProbeType(s string) (ProbeType, error) {
	return parseWord(FieldProbeType, s, probeTypes())
}

// hasPort reports whether the probe is sent to a port.
func (t ProbeType) hasPort() bool { return t > ProbePing }

// Transport returns the type of a probe of the transport protocol alone: an agent's report about
// tcp applies to http, too.
func (t ProbeType) Transport() ProbeType {
	switch t {
	case ProbeHTTP, ProbeHTTPS, ProbeGRPC:
		return ProbeTCP
	case ProbeDNS:
		return ProbeUDP
	}
	return t
}

// isHTTP reports whether the probe is an HTTP request.
func (t ProbeType) isHTTP() bool { return t == ProbeHTTP || t == ProbeHTTPS }

// Probe defines how an endpoint's health is probed.
type Probe struct {
	Type     ProbeType
	Port     uint16 // host byte order; 0: the endpoint's own
	Request  string // HTTP: the path, "/" when empty; others: see ProbeType
	Response string // bytes that the answer must contain; empty: any answer
	Host     string // HTTP: the header; TLS: the name that the certificate must be for; empty: the endpoint's address
	Statuses []StatusRange
	// TLS: PEM files. CA: authorities that may have signed the endpoint's certificate; empty:
	// the certificate is not verified. Certificate, Key: the client's.
	CA, Certificate, Key string

	Interval time.Duration // between the beginnings of two probes, 100 ms to 24 h; 0: DefaultProbeInterval
	Timeout  time.Duration // of each probe, at most Interval; 0: Interval, up to DefaultProbeTimeout
	Fall     int           // consecutive failures after which an endpoint is down, 1 to 100; 0: DefaultProbeFall
	Rise     int           // consecutive successes after which it is up again, 1 to 100; 0: DefaultProbeRise
}

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange struct{ First, Last uint16 }

// String is 200, or 200-299.
func (r StatusRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return strconv.Itoa(int(r.First)) + "-" + strconv.Itoa(int(r.Last))
}

// Defaults of a probe's members.
const (
	DefaultProbeInterval = 2 * time.Second
	DefaultProbeTimeout  = 2 * time.Second
	DefaultProbeFall     = 3
	DefaultProbeRise     = 2
)

// Monitored reports whether the service considers the health of its endpoints: explicitly, or by
// its mode, as in the existing loxilb.
func (s *Service) Monitored() bool { return s.probedExplicitly() || s.probedByMode() }

// probedExplicitly reports whether the service's settings request probes.
func (s *Service) probedExplicitly() bool { return s.Monitor || s.Probe.Type > ProbeNone }

// probedByMode reports whether the mode implies probes and no setting disables them. A service of
// all ports is not probed by default, since any port would be a guess.
func (s *Service) probedByMode() bool {
	return s.Probe.Type == ProbeAuto && s.Mode.TranslatesSource() && (s.Probe.Port != 0 || !s.AllPorts())
}

// IsProbed reports whether an endpoint is probed for the service. Metadata services of clouds are
// never probed; Validate refuses them only if probes are requested explicitly.
func (s *Service) IsProbed(e Endpoint) bool {
	return s.Monitored() && (s.Probe.Type == ProbeNone || !isMetadata(e.Addr))
}

// ProbeOf returns the service's probe of an endpoint, if it is Monitored, with all defaults filled
// in.
func (s *Service) ProbeOf(e Endpoint) Probe {
	p := s.Probe
	p.Type = s.probeType()
	if p.Port == 0 && p.Type.hasPort() {
		p.Port = e.Port
	}
	return p.complete()
}

// probeType returns the type of the probe: the configured one, or that of the protocol.
func (s *Service) probeType() ProbeType {
	if s.Probe.Type != ProbeAuto {
		return s.Probe.Type
	}
	return AutoProbe(s.Protocol)
}

// AutoProbe returns the default type of probe for services of a protocol.
func AutoProbe(p Protocol) ProbeType {
	t, _ := ParseProbeType(p.Traits().Probe) // the protocol's default is a valid type
	return t
}

// complete returns the probe with all defaults filled in.
func (p Probe) complete() Probe {
	p.Interval = cmp.Or(p.Interval, DefaultProbeInterval)
	p.Timeout = cmp.Or(p.Timeout, min(p.Interval, DefaultProbeTimeout))
	p.Fall, p.Rise = cmp.Or(p.Fall, DefaultProbeFall), cmp.Or(p.Rise, DefaultProbeRise)
	if p.Type.isHTTP() && !strings.HasPrefix(p.Request, "/") { // the contract writes paths without the first slash
		p.Request = "/" + p.Request
	}
	return p
}

// Equal reports whether both probes are the same.
func (p *Probe) Equal(o *Probe) bool {
	return p.Type == o.Type && p.Port == o.Port && p.Request == o.Request && p.Response == o.Response && p.Host == o.Host &&
		slices.Equal(p.Statuses, o.Statuses) && p.CA == o.CA && p.Certificate == o.Certificate && p.Key == o.Key &&
		p.Interval == o.Interval && p.Timeout == o.Timeout && p.Fall == o.Fall && p.Rise == o.Rise
}

// NameOfProbe returns the existing loxilb's name of a probe of an address, such as 10.0.0.1_tcp_80.
// Probes of the same address, type and port share it.
func NameOfProbe(a netip.Addr, p *Probe) string {
	return a.String() + "_" + p.Type.String() + "_" + strconv.Itoa(int(p.Port))
}

// monitorFields returns the fields about probing the endpoints of a service.
func monitorFields() []Field[Service] {
	const first = 23 // position in a record
	list := []Field[Service]{
		{
			Name: FieldMonitor, Text: "monitor", Record: "monitor", Position: first, Since: monitorFormat,
			Property: "serviceArguments.monitor", Flag: "monitor",
			Help: "probe the endpoints, and send no new connections to those that are down",
			form: boolean(func(s *Service) *bool { return &s.Monitor }),
		},
		{
			Name: FieldAllDown, Text: "all-down", Record: "allDown", Position: first + 1, Since: monitorFormat,
			Property: "serviceArguments.allDown", Flag: "all-down",
			Help: "how to treat new connections while no endpoint is up",
			form: word(func(s *Service) *AllDown { return &s.AllDown }, allDowns),
		},
	}
	for i, f := range probeFields(func(s *Service) *Probe { return &s.Probe }) {
		f.Position, f.Since, f.Property = first+2+i, monitorFormat, "serviceArguments."+f.Property
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
			form: word(func(t *T) *ProbeType { return &at(t).Type }, probeTypes),
		},
		{
			Name: FieldProbePort, Text: "probeport", Record: "probePort", Property: "probeport", Flag: "probeport",
			Help: "port to probe; 0 is the endpoint's own", Allowed: "0 (the endpoint's own) to 65535",
			form: number(func(t *T) *uint16 { return &at(t).Port }, 65535),
		},
		{
			Name: FieldProbeRequest, Text: "probereq", Record: "probeRequest", Property: "probereq", Flag: "probereq",
			Help: "request of a probe: path (http, https; default /), service (grpc; default: the whole server), name (dns) or bytes (tcp, udp)",
			form: text(func(t *T) *string { return &at(t).Request }),
		},
		{
			Name: FieldProbeResponse, Text: "proberesp", Record: "probeResponse", Property: "proberesp", Flag: "proberesp",
			Help: "text that the answer must contain (default: any answer passes)",
			form: text(func(t *T) *string { return &at(t).Response }),
		},
		{
			Name: FieldProbeInterval, Text: "probe-interval", Record: "probeInterval", Property: "probeInterval", Flag: "probe-interval",
			Help: "interval between probes, such as 500ms or 10s (default 2s)",
			form: duration(func(t *T) *time.Duration { return &at(t).Interval }),
		},
		{
			Name: FieldProbeWait, Text: "probe-wait", Record: "probeWait", Property: "probeWait", Flag: "probe-wait",
			Help: "timeout of a probe, at most --probe-interval (default: --probe-interval, at most 2s)",
			form: duration(func(t *T) *time.Duration { return &at(t).Timeout }),
		},
		{
			Name: FieldProbeRetries, Text: "probe-retries", Record: "probeRetries", Property: "probeRetries", Flag: "probe-retries",
			Help: "consecutive failures before an endpoint is down; 0 is 3", Allowed: counts,
			form: number(func(t *T) *int { return &at(t).Fall }, MaxProbeCount),
		},
		{
			Name: FieldProbeRise, Text: "probe-rise", Record: "probeRise", Property: "probeRise", Flag: "probe-rise",
			Help: "consecutive successes before an endpoint is up again; 0 is 2", Allowed: counts,
			form: number(func(t *T) *int { return &at(t).Rise }, MaxProbeCount),
		},
		{
			Name: FieldProbeHost, Text: "probe-host", Record: "probeHost", Property: "probeHost", Flag: "probe-host",
			Help: "host name to request (http, https, grpc) and to verify in the certificate (default: the endpoint's address)",
			form: text(func(t *T) *string { return &at(t).Host }),
		},
		{
			Name: FieldProbeStatuses, Also: FieldProbeStatus, Text: "probe-statuses", Record: "probeStatuses", Property: "probeStatuses",
			Flag: "probe-statuses", Help: "HTTP statuses that pass, such as 200-299,404 (default 200)",
			form: listOf(func(t *T) *[]StatusRange { return &at(t).Statuses }, parseStatuses),
		},
		{
			Name: FieldProbeCA, Text: "probe-ca", Record: "probeCA", Property: "probeCA", Flag: "probe-ca",
			Help: "CA certificates to verify https and grpc servers: absolute path of a PEM file below loxilb --probe-files (default: they are not verified)",
			form: text(func(t *T) *string { return &at(t).CA }),
		},
		{
			Name: FieldProbeCertificate, Text: "probe-cert", Record: "probeCertificate", Property: "probeCert", Flag: "probe-cert",
			Help: "client certificate for https and grpc: absolute path of a PEM file below loxilb --probe-files",
			form: text(func(t *T) *string { return &at(t).Certificate }),
		},
		{
			Name: FieldProbeKey, Text: "probe-key", Record: "probeKey", Property: "probeKey", Flag: "probe-key",
			Help: "private key of --probe-cert: absolute path of a PEM file below loxilb --probe-files",
			form: text(func(t *T) *string { return &at(t).Key }),
		},
	}
}

// parseStatuses is the inverse of StatusRange.String.
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
