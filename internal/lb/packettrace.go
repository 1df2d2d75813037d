package lb

import (
	"net/netip"
	"slices"
	"time"
)

// PacketTrace is a packet, as it came to a program of the data path and as it left, with what has
// become of it.
type PacketTrace struct {
	Time          time.Time
	Took          time.Duration // in the program
	Point         string        // where the program is: ingress, egress or xdp
	In, Out       int           // indices of interfaces; Out 0: it does not leave, or the kernel decides
	Verdict       TraceVerdict
	Reason        string     // why it was dropped or left to the kernel; may be empty
	Before, After PacketView // After has no data if the packet is gone
}

// PacketView is a packet at one moment.
type PacketView struct {
	Layer3  bool   // it begins with its IP header
	Length  int    // of the whole packet
	Segment int    // of a packet that is many segments: the length of each; else 0
	Data    []byte // its beginning
}

// TraceVerdict is what becomes of a packet.
type TraceVerdict string

// The verdicts.
const (
	TracePass      TraceVerdict = "pass"      // the kernel has it
	TraceForward   TraceVerdict = "forward"   // it leaves
	TraceDrop      TraceVerdict = "drop"      // it is gone
	TraceAnswer    TraceVerdict = "answer"    // it is gone, and its sender is told
	TraceChallenge TraceVerdict = "challenge" // its sender is asked whether it is there
)

// TraceVerdicts are all, in the order of the data path's numbers.
func TraceVerdicts() []TraceVerdict {
	return []TraceVerdict{TracePass, TraceForward, TraceDrop, TraceAnswer, TraceChallenge}
}

// Known tells whether there is such a verdict.
func (v TraceVerdict) Known() bool { return slices.Contains(TraceVerdicts(), v) }

// TraceFilter says which packets somebody wants to see: those that all its members take. The zero
// value of a member takes all, but for Sample.
type TraceFilter struct {
	Host      netip.Prefix // has an address of the packet, before or after
	VIP       netip.Addr   // where it goes before, or comes from after
	VIPPorts  [2]uint16    // from, to: of the VIP
	Port      uint16       // any of its ports, before or after
	Protocol  Protocol
	Interface int // by which it comes or leaves
	Verdict   TraceVerdict
	Reason    string  // why it is dropped
	Sample    float64 // share of the packets that are looked at: above 0, up to 1
}
