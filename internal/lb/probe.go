package lb

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProbeType is what a probe of an endpoint does.
type ProbeType uint8

// What a probe asks for.
const (
	ProbeAuto  ProbeType = iota // nobody has said: what Service.ProbeOf makes of the protocol
	ProbeNone                   // nothing: the endpoint is taken to be up
	ProbePing                   // an answer to ICMP echo
	ProbeTCP                    // that a connection is accepted; with Request, an answer that has Response in it
	ProbeUDP                    // an answer that has Response in it; without Response, no ICMP port unreachable
	ProbeHTTP                   // one of Statuses, and a body that has Response in it
	ProbeHTTPS                  // the same, by TLS
	ProbeGRPC                   // SERVING, as grpc.health.v1 says; Request is the name of the service
	ProbeDNS                    // an answer without error to a query for the name Request; with Response, this address in it
	ProbeSCTP                   // that an association comes about
)

func probeTypes() []choice[ProbeType] {
	return []choice[ProbeType]{
		{value: ProbeAuto, word: "auto", help: "tcp, udp or ping, following the service's protocol"},
		{value: ProbeTCP, word: "tcp", help: "the endpoint accepts a connection, and answers --probereq with --proberesp if given"},
		{value: ProbeUDP, word: "udp", help: "it answers --probereq with --proberesp; without --proberesp it only must not refuse the datagram"},
		{value: ProbePing, word: "ping", help: "it answers an echo request"},
		{value: ProbeHTTP, word: "http", help: "it answers GET of the path --probereq with one of --probe-statuses, and --proberesp in the body"},
		{value: ProbeHTTPS, word: "https", help: "like http, over TLS"},
		{value: ProbeGRPC, word: "grpc", help: "grpc.health.v1 says SERVING of the service --probereq, over TLS with --probe-ca or --probe-cert"},
		{value: ProbeDNS, word: "dns", help: "it resolves the name --probereq, to the address --proberesp if given"},
		{value: ProbeNone, word: "none", help: "no probe: the endpoint is up until POST config/endpointhoststate reports otherwise"},
		{value: ProbeSCTP, word: "sctp", help: "it takes an association", instead: "ping asks whether the machine is there"},
	}
}

// String is the word of flags, JSON and text.
func (t ProbeType) String() string { return wordOf("probe type", t, probeTypes()) }

// ParseProbeType takes the word; "" is auto.
func ParseProbeType(s string) (ProbeType, error) {
	return parseWord(FieldProbeType, s, probeTypes())
}

// hasPort tells whether the probe is sent to a port.
func (t ProbeType) hasPort() bool { return t > ProbePing }

// Transport is the type of probes that ask by the same protocol, and nothing above it: an agent
// that speaks of tcp means http, too.
func (t ProbeType) Transport() ProbeType {
	switch t {
	case ProbeHTTP, ProbeHTTPS, ProbeGRPC:
		return ProbeTCP
	case ProbeDNS:
		return ProbeUDP
	}
	return t
}

// isHTTP tells whether the probe is a request of HTTP.
func (t ProbeType) isHTTP() bool { return t == ProbeHTTP || t == ProbeHTTPS }

// Probe is how the health of an endpoint is found out by asking it.
type Probe struct {
	Type     ProbeType
	Port     uint16 // host byte order; 0: the endpoint's own
	Request  string // HTTP: the path, "/" when empty; others: see ProbeType
	Response string // bytes that the answer must have in it; empty: any answer
	Host     string // HTTP: the header; TLS: the name that the certificate must be for; empty: the endpoint's address
	Statuses []StatusRange
	// TLS: files of PEM. CA: who may have signed the endpoint's certificate; empty: anybody, as
	// nothing is verified then. Certificate, Key: what the client shows.
	CA, Certificate, Key string

	Interval time.Duration // between the beginnings of two probes, 100 ms to 24 h; 0: DefaultProbeInterval
	Timeout  time.Duration // of one, at most Interval; 0: Interval, but no longer than DefaultProbeTimeout
	Fall     int           // failures in a row that make an endpoint be down, 1 to 100; 0: DefaultProbeFall
	Rise     int           // successes in a row that make it be up again, 1 to 100; 0: DefaultProbeRise
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

// What a probe's members are when they are not given.
const (
	DefaultProbeInterval = 2 * time.Second
	DefaultProbeTimeout  = 2 * time.Second
	DefaultProbeFall     = 3
	DefaultProbeRise     = 2
)

// Monitored tells whether the service heeds the health of its endpoints: because it says so, or by
// its mode, as in the contract.
func (s *Service) Monitored() bool { return s.asksForProbes() || s.probedByMode() }

// asksForProbes tells whether the service says that its endpoints are to be probed.
func (s *Service) asksForProbes() bool { return s.Monitor || s.Probe.Type > ProbeNone }

// probedByMode tells whether nobody has said, and the mode has endpoints probed; which port of all
// ports would be a guess.
func (s *Service) probedByMode() bool {
	return s.Probe.Type == ProbeAuto && s.Mode.TranslatesSource() && (s.Probe.Port != 0 || !s.AllPorts())
}

// Probes tells whether an endpoint is probed for the service. One that nobody may have probed is
// not, and its service is refused only if it asks.
func (s *Service) Probes(e Endpoint) bool {
	return s.Monitored() && (s.Probe.Type == ProbeNone || !isMetadata(e.Addr))
}

// ProbeOf is how the service wants an endpoint to be probed, if it is Monitored: nothing is left
// out.
func (s *Service) ProbeOf(e Endpoint) Probe {
	p := s.Probe
	p.Type = s.probeType()
	if p.Port == 0 && p.Type.hasPort() {
		p.Port = e.Port
	}
	return p.complete()
}

// probeType is what is asked for, by name or by protocol.
func (s *Service) probeType() ProbeType {
	switch {
	case s.Probe.Type != ProbeAuto:
		return s.Probe.Type
	case s.Protocol == UDP:
		return ProbeUDP
	case s.Protocol == ICMP:
		return ProbePing
	}
	return ProbeTCP
}

// complete is the probe with every default written out.
func (p Probe) complete() Probe {
	p.Interval = cmp.Or(p.Interval, DefaultProbeInterval)
	p.Timeout = cmp.Or(p.Timeout, min(p.Interval, DefaultProbeTimeout))
	p.Fall, p.Rise = cmp.Or(p.Fall, DefaultProbeFall), cmp.Or(p.Rise, DefaultProbeRise)
	if p.Type.isHTTP() && !strings.HasPrefix(p.Request, "/") { // the contract writes paths without the first slash
		p.Request = "/" + p.Request
	}
	return p
}

// Equal tells whether both ask the same in the same way.
func (p *Probe) Equal(o *Probe) bool {
	return p.Type == o.Type && p.Port == o.Port && p.Request == o.Request && p.Response == o.Response && p.Host == o.Host &&
		slices.Equal(p.Statuses, o.Statuses) && p.CA == o.CA && p.Certificate == o.Certificate && p.Key == o.Key &&
		p.Interval == o.Interval && p.Timeout == o.Timeout && p.Fall == o.Fall && p.Rise == o.Rise
}

// NameOfProbe is what the contract calls a probe of an address: 10.0.0.1_tcp_80. Two probes that
// differ in something else share it.
func NameOfProbe(a netip.Addr, p *Probe) string {
	return a.String() + "_" + p.Type.String() + "_" + strconv.Itoa(int(p.Port))
}
