package lb

import "time"

// ProbeType is what a probe of an endpoint does.
type ProbeType uint8

// What a probe asks for.
const (
	ProbeNone  ProbeType = iota // nothing: the endpoint is taken to be up
	ProbePing                   // an answer to ICMP echo
	ProbeTCP                    // that a connection is accepted; with Request, an answer that has Response in it
	ProbeUDP                    // an answer that has Response in it; without Response, no ICMP port unreachable
	ProbeHTTP                   // one of Statuses, and a body that has Response in it
	ProbeHTTPS                  // the same, by TLS
	ProbeGRPC                   // SERVING, as grpc.health.v1 says; Request is the name of the service
	ProbeDNS                    // an answer without error to a query for the name Request; with Response, this address in it
)

// Probe is how the health of an endpoint is found out by asking it.
type Probe struct {
	Type     ProbeType
	Port     uint16 // host byte order; 0: the endpoint's own
	Request  string // HTTP: the path, "/" when empty; others: see ProbeType
	Response string // bytes that the answer must have in it; empty: any answer
	Host     string // HTTP: the header; TLS: the name that the certificate must be for; empty: the endpoint's address
	Statuses []StatusRange
	// TLS: files of PEM. CA: who may have signed the endpoint's certificate; empty: anybody, as nothing is verified then.
	// Certificate, Key: what the client shows.
	CA, Certificate, Key string

	Interval time.Duration // between the beginnings of two probes, 100 ms to 24 h; 0: DefaultProbeInterval
	Timeout  time.Duration // of one, at most Interval; 0: Interval, but no longer than DefaultProbeTimeout
	Fall     int           // failures in a row that make an endpoint be down, 1 to 100; 0: DefaultProbeFall
	Rise     int           // successes in a row that make it be up again, 1 to 100; 0: DefaultProbeRise
}

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange struct{ First, Last uint16 }

// What a probe's members are when they are not given.
const (
	DefaultProbeInterval = 2 * time.Second
	DefaultProbeTimeout  = 2 * time.Second
	DefaultProbeFall     = 3
	DefaultProbeRise     = 2
)
