package lb

import (
	"fmt"
	"strconv"
)

// Refusal is what becomes of a packet that a service has no use for: a new connection while no endpoint takes any,
// and a TCP segment of no connection.
type Refusal uint8

// The refusals.
const (
	RefuseReject Refusal = iota // the sender is told at once: RST, or ICMP port unreachable
	RefuseDrop                  // nobody is told
	RefusePass                  // the kernel gets it, as if there were no service
)

func refusals() []Refusal { return []Refusal{RefuseReject, RefuseDrop, RefusePass} }

// String is the word of flags, JSON and text.
func (r Refusal) String() string {
	switch r {
	case RefuseReject:
		return "reject"
	case RefuseDrop:
		return "drop"
	case RefusePass:
		return "pass"
	}
	return fmt.Sprintf("refusal(%d)", uint8(r))
}

// ParseRefusal takes the word; "" is reject.
func ParseRefusal(s string) (Refusal, error) {
	if s == "" {
		return RefuseReject, nil
	}
	for _, r := range refusals() {
		if s == r.String() {
			return r, nil
		}
	}
	return 0, NewFieldError(FieldRefuse, s, "is not known", list(words(refusals())))
}

// The largest TCP segment that a service may ask for: what Linux takes as such.
const (
	minMSS = 88
	maxMSS = 65495
)

const mssAllowed = "0 (as the two sides have it), or 88 to 65495"

// ParseMSS takes the limit in bytes.
func ParseMSS(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, NewFieldError(FieldMSS, s, "is not a number of bytes", mssAllowed)
	}
	return uint16(n), nil
}

func (s Service) validateRefusal() error {
	if err := wordError(FieldRefuse, s.Refuse, refusals(), refusals()); err != nil {
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
