package report

import (
	"net/netip"
	"time"
)

// HandshakeBuckets is the number of buckets of handshake times.
const HandshakeBuckets = 11

// Handshakes count the outcomes of TCP handshakes with an endpoint since it was added. Connections
// without visible answers, as in mode dsr, do not count.
type Handshakes struct {
	Opened      uint64                   // connections, each by a SYN
	Answered    [HandshakeBuckets]uint64 // SYNs, by the time from the first one to the SYN+ACK
	Repeated    uint64                   // SYNs repeated before an answer
	Refused     uint64                   // SYNs answered by a RST
	Reset       uint64                   // connections that a RST of the endpoint ended before it had sent data
	Unreachable uint64                   // ICMP errors that report an undeliverable SYN
}

// HandshakeBound returns the upper bound of a bucket's handshake times, for a kernel clock that
// ticks once per jiffy. The last bucket has none.
func HandshakeBound(bucket int, jiffy time.Duration) time.Duration { return jiffy << bucket }

// AllAnswered returns the number of SYNs that were answered.
func (h *Handshakes) AllAnswered() (sum uint64) {
	for _, n := range h.Answered {
		sum += n
	}
	return sum
}

// Failed returns the number of handshakes that the endpoint or the network has refused.
func (h *Handshakes) Failed() uint64 { return h.Refused + h.Reset + h.Unreachable }

// Unanswered returns the number of SYNs without an answer so far, including recent ones.
func (h *Handshakes) Unanswered() uint64 {
	ended := h.AllAnswered() + h.Refused + h.Unreachable
	return h.Opened - min(h.Opened, ended)
}

// Add adds the counts of another endpoint.
func (h *Handshakes) Add(o *Handshakes) {
	h.Opened += o.Opened
	for i, n := range o.Answered {
		h.Answered[i] += n
	}
	h.Repeated += o.Repeated
	h.Refused += o.Refused
	h.Reset += o.Reset
	h.Unreachable += o.Unreachable
}

// HandshakeRow has the counts of an endpoint of a service. Another ID at the same address is
// another endpoint.
type HandshakeRow struct {
	Addr     netip.AddrPort
	ID       uint32
	Idle     bool // its weight is 0, or it is drained
	Inactive bool // it gets no connections now: it is idle, down, or a backup that is not needed
	Count    Handshakes
	Outcomes
}

// Outcomes count the outcomes of TCP connections with an endpoint since it was added. Numbers wrap
// around.
type Outcomes struct {
	Completed uint32 // handshakes that clients have completed
	Clients   uint32 // SYNs whose client differs from the previous SYN's, while the endpoint answers none
	Served    uint32 // sampled connections in which the endpoint has sent data
	// Stalled counts connections in which the client has sent data, and the endpoint none for 3
	// s. Consecutive stalls of one client count once.
	Stalled uint32
	// StalledClients counts the clients of stalled connections, each once until the endpoint
	// serves a connection, or none stalls for 30 s. It wraps at 16 bits.
	StalledClients uint16
}
