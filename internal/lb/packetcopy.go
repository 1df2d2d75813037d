package lb

import "time"

// PacketCopy is the beginning of a packet, as it arrived.
type PacketCopy struct {
	Time      time.Time
	Rule      uint64 // the identity of the firewall rule that has recorded it
	Action    RuleAction
	Interface int    // index of the interface at which it arrived
	Layer3    bool   // it begins with its IP header
	Length    int    // of the whole packet
	Data      []byte // at most as long
}
