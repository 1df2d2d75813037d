package report

import (
	"net/netip"
	"time"

	"loxilb/internal/lb"
)

// ConnectionCopy is the state of a connection as nodes of a cluster exchange it, without values
// that are local to a node, such as row numbers and clocks. bpf/abi.h defines Flags, Hop, Traits
// and Generation.
type ConnectionCopy struct {
	Protocol   lb.Protocol
	Client     netip.AddrPort // addresses as the client's packets arrive
	VIP        netip.AddrPort
	Source     netip.AddrPort // the source that the endpoint sees
	Endpoint   netip.AddrPort
	Mark       uint32 // of its service
	Flags      uint8
	Hop        uint8
	Traits     uint8
	Generation uint8
	Numbers    TCPNumbers
	Idle       time.Duration // since the last packet of either direction
	Late       bool          // the end of a connection that a node may have missed: never inserted
}

// The flags of bpf/abi.h for an ended connection: a reset, or both FINs acknowledged; for SCTP, the
// end of the shutdown. Of a connection that its endpoint answers directly, only the client's FIN is
// seen.
const (
	FlagsFIN      = flagFINClient | 0x10
	FlagsAcked    = 0x20 | 0x40
	FlagReset     = 0x80
	flagFINClient = 0x08
	traitOneWay   = 0x04
)

// IsClosed reports whether the connection has ended.
func (c *ConnectionCopy) IsClosed() bool {
	return c.Flags&FlagReset != 0 || c.Flags&FlagsAcked == FlagsAcked
}

// HasEnded reports whether the connection has ended, or soon will: both sides have closed, or its
// endpoint may have closed it unnoticed.
func (c *ConnectionCopy) HasEnded() bool {
	return c.IsClosed() || c.Flags&FlagsFIN == FlagsFIN || c.Traits&traitOneWay != 0 && c.Flags&flagFINClient != 0
}

// TCPNumbers are the sequence numbers of both directions of a TCP connection. For SCTP, Acked and
// ReplyAcked are the verification tags of the client's and of the endpoint's packets.
type TCPNumbers struct {
	Sent, Acked           uint32 // of the client
	ReplySent, ReplyAcked uint32 // of the endpoint
}

// ClientCopy is the endpoint that a client of a service with --select=persist keeps, as nodes of a
// cluster exchange it.
type ClientCopy struct {
	Protocol lb.Protocol
	Ranged   bool       // the service has a range of ports
	Client   netip.Addr // or the first address of its network
	VIP      netip.AddrPort
	Mark     uint32 // of the service
	Endpoint netip.AddrPort
	Idle     time.Duration // since the client has opened a connection
}

// CopyResult is the outcome of a received copy, in the order of enum copy_result of bpf/abi.h.
type CopyResult uint8

// The results.
const (
	CopyNone     CopyResult = iota // not tried
	CopyInserted                   // it has become a connection of this node
	CopyMerged                     // it updated a connection of this node
	CopyOld                        // it belongs to an earlier connection from the same client port
	CopyUnknown                    // its service or endpoint is not here
	CopyBusy                       // a packet is changing the same rows: try again
	CopyConflict                   // another connection has its addresses and ports
	CopyFull                       // the table is full
	CopyOutrun                     // another node reset it without having seen this node's latest packets, so it was reset here, too
	CopyResults  = iota
)

// String returns the word of a result in metrics.
func (r CopyResult) String() string {
	return [...]string{"none", "inserted", "merged", "old", "unknown", "busy", "conflict", "full", "outrun"}[r]
}

// CopySelection selects the connections that a scan of the table finds.
type CopySelection struct {
	Since  time.Duration // used within this time; 0: all
	Due    bool          // instead, connections whose copies were due for a refresh within Since
	Copies bool          // also connections that were only used at other nodes
}
