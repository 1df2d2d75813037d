package lb

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

// String returns the reason as drops have it.
func (r RefusalReason) String() string {
	return [RefusalReasons]string{
		"no-endpoint", "conntrack-full", "connection-limit", "rate-limit", "source-not-allowed", "source-denied",
		"half-open-full", "unknown-source", "snat-ports-exhausted", "tuple-in-use", "no-connection", "other",
	}[r]
}

// Refusals count refused packets by reason. A client that repeats its SYN counts each time.
type Refusals [RefusalReasons]uint64

// Sum returns the number of all.
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

// Each calls yield with each reason that something was refused for.
func (r *Refusals) Each(yield func(reason RefusalReason, n uint64)) {
	for i, n := range r {
		if n > 0 {
			yield(RefusalReason(i), n)
		}
	}
}
