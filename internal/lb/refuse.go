package lb

import "strconv"

// Refusal is how a service handles a packet that it cannot use: a new connection while no endpoint
// is available, and a TCP segment without a connection.
type Refusal uint8

// The refusals.
const (
	RefuseReject Refusal = iota
	RefuseDrop
	RefusePass
)

func refusals() []choice[Refusal] {
	return []choice[Refusal]{
		{value: RefuseReject, word: "reject", help: "answer with RST or ICMP port unreachable"},
		{value: RefuseDrop, word: "drop", help: "drop silently"},
		{value: RefusePass, word: "pass", help: "hand the packet to the kernel, as if there were no service"},
	}
}

// String returns the word of flags, JSON and text.
func (r Refusal) String() string { return wordOf("refusal", r, refusals()) }

// Limits of the largest TCP segment of a service: those of Linux.
const (
	minMSS = 88
	maxMSS = 65495
)

const mssAllowed = "0 (as the two sides have it), or 88 to 65495"

func (s Service) validateRefusal() error {
	if err := wordError(FieldRefuse, s.Refuse, refusals()); err != nil {
		return err
	}
	mss := strconv.Itoa(int(s.MSS))
	switch {
	case s.MSS == 0:
		return nil
	case s.Protocol != TCP:
		return NewFieldError(FieldMSS, mss, "is given, and "+s.Protocol.String()+" has no segments", "0")
	case s.MSS < minMSS || s.MSS > maxMSS:
		return NewFieldError(FieldMSS, mss, "is out of range", mssAllowed)
	}
	return nil
}
