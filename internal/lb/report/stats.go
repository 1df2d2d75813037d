// Package report defines the reports of the data path and of probes: counters, connections,
// packets, reasons of drops, and health.
package report

import (
	"net/netip"

	"loxilb/internal/lb"
)

// Traffic counts packets and bytes. Bytes are of the IP packet, without the link layer; a GSO
// packet counts as one packet, as it is at the hook.
type Traffic struct{ Packets, Bytes uint64 }

// EndpointStats are the counters of one endpoint of one service, since it was added.
type EndpointStats struct {
	Connections uint64  // total of opened connections
	Active      uint64  // open now
	Inactive    uint64  // closed, but still in the connection table for late packets or a source port in quarantine
	In          Traffic // client to endpoint
	Out         Traffic // endpoint to client
	Available   bool    // it gets new connections, as its service is applied now
	Share       float64 // current fraction of its weight for new connections: less than 1 during slow start, 0 if it takes none
	Source      string  // in mode auto, the client address that the endpoint sees: one of this machine; "": the client's own; "none": no route; "several": the endpoint is a service itself
	Handshakes  Handshakes
	Refusals    Refusals // of an endpoint: packets refused for lack of a source port or tuple there
}

// Attempts returns the number of opened connections plus refused packets.
func (s *EndpointStats) Attempts() uint64 { return s.Connections + s.Refusals.Sum() }

// Tracked is the number of connections in the table, active and inactive.
func (s *EndpointStats) Tracked() uint64 { return s.Active + s.Inactive }

// ServiceStats are the counters of a service. Its sums include endpoints that were removed.
type ServiceStats struct {
	EndpointStats
	Endpoints []EndpointStats // in the order of Service.Endpoints
}

// EndpointCount has the counters of an endpoint since it was added to its service. IDs are reused:
// with another service or address, the same ID counts for another endpoint.
type EndpointCount struct {
	ID      uint32
	Service lb.Key
	Addr    netip.AddrPort
	EndpointStats
}

// Pressure is the load of the connection table, and the number of forged clients that the data path
// keeps out.
type Pressure struct {
	HalfOpenTCP    int64 // connections without a complete handshake
	HalfOpenOthers int64 // of other protocols: the client has not sent again after an answer
	HalfOpenMax    int64 // limit of each, beyond which unknown clients are challenged or refused; a service may have half of it; 0: unlimited
	Entries        int64 // of the table: two for each connection, one for a source port in quarantine
	EntriesMax     int64
	PortsShort     bool   // a pool of source ports has less than an eighth free, or had lately
	Challenged     uint64 // SYNs of unknown clients that were challenged
	Answered       uint64 // challenges
	KnownClients   uint64 // IPv4 addresses, and IPv6 networks of 64 bits
}

// Urgency is the urgency of removing entries of the connection table.
type Urgency int

// The urgencies.
const (
	UrgencyLow    Urgency = iota
	UrgencyMedium         // more than three quarters of the table are in use
	UrgencyHigh           // half-open or closed connections will expire early
)

// Urgency returns the urgency by the load of the whole machine. A service may have a quarter of its
// own half-open limit in use once the machine has an eighth of its limit.
func (p *Pressure) Urgency() Urgency {
	halfOpen := max(p.HalfOpenTCP, p.HalfOpenOthers)
	switch {
	case p.HalfOpenMax > 0 && (8*halfOpen >= p.HalfOpenMax || 2*p.Entries >= p.EntriesMax || p.PortsShort):
		return UrgencyHigh
	case 4*p.Entries > 3*p.EntriesMax:
		return UrgencyMedium
	}
	return UrgencyLow
}

// MapUse is the use of a map of the data path.
type MapUse struct {
	Name    string
	Entries uint64 // rows in use
	Max     uint64 // capacity; 0: not a map that packets or users fill
	Recent  bool   // it is usually full after some time: then the least recently used row is evicted
	Bytes   uint64 // of the kernel's memory
}

// Histogram counts values in buckets that end at powers of two: bucket i at 1 << i.
type Histogram struct {
	Sum     uint64
	Buckets [HistogramBuckets]uint64 // the first one includes 0, the last one all larger values
}

// HistogramBuckets is HISTOGRAM_BUCKETS of bpf/abi.h.
const HistogramBuckets = 48

// Add adds the values of another histogram.
func (h *Histogram) Add(o *Histogram) {
	h.Sum += o.Sum
	for i, n := range o.Buckets {
		h.Buckets[i] += n
	}
}

// Count returns the number of values.
func (h *Histogram) Count() (n uint64) {
	for _, one := range h.Buckets {
		n += one
	}
	return n
}

// LifeUnit is the unit of Lifetimes.Life in seconds: 1 / (1 << LIFE_SHIFT of bpf/abi.h).
const LifeUnit = 1.0 / (1 << 20)

// Lifetimes has histograms of a protocol's ended connections. For TCP, it counts only connections
// with a complete handshake.
type Lifetimes struct {
	Protocol string    // tcp, udp, sctp, icmp
	Life     Histogram // from the first packet to the last one, in LifeUnits
	In, Out  Histogram // bytes of IP packets from the client, and to it, where answers are seen
}

// SourcePorts is the number of ports of one of our source addresses that are in use, or in
// quarantine, towards an endpoint.
type SourcePorts struct {
	Source   netip.Addr
	Endpoint netip.AddrPort
	Protocol lb.Protocol
	Used     int
	Max      int
}

// RefusalReason is a reason for which a service refuses packets that would open connections.
type RefusalReason int

// The refusals, in the order of enum refusal of bpf/abi.h.
const (
	NoEndpoint RefusalReason = iota
	ConntrackFull
	ConnectionLimit
	RateLimit
	SourceNotAllowed
	SourceDenied
	HalfOpenFull
	UnknownSource
	PortsExhausted
	TupleInUse
	NoConnection
	OtherRefusal
	RefusalReasons // their number
)

// String returns the name of the drop reason.
func (r RefusalReason) String() string {
	return [RefusalReasons]string{
		"no-endpoint", "conntrack-full", "connection-limit", "rate-limit", "source-not-allowed", "source-denied",
		"half-open-full", "unknown-source", "snat-ports-exhausted", "tuple-in-use", "no-connection", "other",
	}[r]
}

// Refusals count refused packets by reason. A client that repeats its SYN counts each time.
type Refusals [RefusalReasons]uint64

// Sum returns the total of all reasons.
func (r *Refusals) Sum() (sum uint64) {
	for _, n := range r {
		sum += n
	}
	return sum
}

// Add adds the counts of o.
func (r *Refusals) Add(o *Refusals) {
	for i, n := range o {
		r[i] += n
	}
}

// Each calls yield for each reason with a count.
func (r *Refusals) Each(yield func(reason RefusalReason, n uint64)) {
	for i, n := range r {
		if n > 0 {
			yield(RefusalReason(i), n)
		}
	}
}

// IdleEnds counts established TCP connections that ended because they were idle for too long.
type IdleEnds struct {
	Reset  uint64 // both ends got a RST
	Silent uint64 // neither end got a RST: too many ended at once
}

// Ended counts connections that were ended on demand.
type Ended struct {
	Reset  int // TCP: both ends got a RST
	Silent int // all others: the next packet opens another connection, or is refused
	Next   int // position to continue from, if some may be left
}
