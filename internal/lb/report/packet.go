package report

import (
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// PacketTrace is a packet as it arrived at a program of the data path and as it left, with its
// outcome.
type PacketTrace struct {
	Time          time.Time
	Took          time.Duration // in the program
	Point         string        // hook of the program: ingress, egress or xdp
	In, Out       int           // indices of interfaces; Out 0: it does not leave, or the kernel decides
	Verdict       TraceVerdict
	Reason        string     // why it was dropped or left to the kernel; may be empty
	Before, After PacketView // After has no data if the packet no longer exists
}

// PacketView is a packet at one moment.
type PacketView struct {
	Layer3  bool   // it begins with its IP header
	Length  int    // of the whole packet
	Segment int    // length of each segment if the packet is several segments; else 0
	Data    []byte // its beginning
}

// TraceVerdict is the outcome of a packet.
type TraceVerdict string

// The verdicts.
const (
	TracePass      TraceVerdict = "pass"      // the kernel has it
	TraceForward   TraceVerdict = "forward"   // it leaves
	TraceDrop      TraceVerdict = "drop"      // dropped
	TraceAnswer    TraceVerdict = "answer"    // dropped, and its sender is answered
	TraceChallenge TraceVerdict = "challenge" // its sender is challenged
)

// TraceVerdicts returns all verdicts, in the order of the data path's numbers.
func TraceVerdicts() []TraceVerdict {
	return []TraceVerdict{TracePass, TraceForward, TraceDrop, TraceAnswer, TraceChallenge}
}

// Known reports whether the verdict exists.
func (v TraceVerdict) Known() bool { return slices.Contains(TraceVerdicts(), v) }

// TraceFilter selects packets that match all its members. The zero value of a member matches all
// packets, except for Sample.
type TraceFilter struct {
	Host      netip.Prefix // has an address of the packet, before or after
	VIP       netip.Addr   // its destination before, or its source after
	VIPPorts  [2]uint16    // from, to: of the VIP
	Port      uint16       // any of its ports, before or after
	Protocol  lb.Protocol
	Interface int // at which it arrives or leaves
	Verdict   TraceVerdict
	Reason    string  // why it is dropped
	Sample    float64 // share of the packets that are sampled: above 0, up to 1
}

// PacketCopy is the beginning of a packet, as it arrived.
type PacketCopy struct {
	Time      time.Time
	Rule      uint64 // the identity of the firewall rule that has recorded it
	Action    policy.RuleAction
	Interface int    // index of the interface at which it arrived
	Layer3    bool   // it begins with its IP header
	Length    int    // of the whole packet
	Data      []byte // the first bytes of the packet
}
