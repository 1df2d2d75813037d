package lb

import "strconv"

// Refusal is what becomes of a packet that a service has no use for: a new connection while no
// endpoint takes any, and a TCP segment of no connection.
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

// String is the word of flags, JSON and text.
func (r Refusal) String() string { return wordOf("refusal", r, refusals()) }

// ParseRefusal takes the word; "" is reject.
func ParseRefusal(s string) (Refusal, error) {
	return parseWord(FieldRefuse, s, refusals())
}

// The largest TCP segment that a service may ask for: what Linux takes as such.
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
