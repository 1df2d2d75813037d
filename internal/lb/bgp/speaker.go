package bgp

import (
	"net/netip"
	"strconv"
	"time"

	"loxilb/internal/lb"
)

// Names of fields in errors, as in the API.
const (
	FieldASN             = "localAs"
	FieldRouterID        = "routerId"
	FieldGracefulRestart = "gracefulRestart"
)

// SpeakerKey is the key of the only Speaker.
const SpeakerKey = "global"

// MaxGracefulRestart is the longest restart time that a speaker can ask for: 12 bits of seconds.
const MaxGracefulRestart = 4095 * time.Second

const (
	asTrans    = 23456 // replaces a 4-byte AS in messages to speakers that know 2 bytes only (RFC 6793)
	allowedASN = "1 to 4294967295, but not 23456"
)

// Key is the same for every speaker: a node has one.
func (s Speaker) Key() string { return SpeakerKey }

// Validate checks all fields.
func (s Speaker) Validate() error {
	if err := validateASN(FieldASN, s.ASN); err != nil {
		return err
	}
	if id := s.RouterID; id != (netip.Addr{}) && (!id.Is4() || id.IsUnspecified()) {
		return lb.NewFieldError(FieldRouterID, id.String(), "is not a router ID", "an IPv4 address other than 0.0.0.0")
	}
	const allowed = "0s (none) to 4095s, whole seconds"
	switch d := s.GracefulRestart; {
	case d < 0 || d > MaxGracefulRestart:
		return lb.NewFieldError(FieldGracefulRestart, d.String(), "is out of range", allowed)
	case d%time.Second != 0:
		return lb.NewFieldError(FieldGracefulRestart, d.String(), "is not whole seconds", allowed)
	}
	return nil
}

func validateASN(field string, asn uint32) error {
	switch asn {
	case 0:
		return lb.NewFieldError(field, "0", "is not an AS number", allowedASN)
	case asTrans:
		return lb.NewFieldError(field, strconv.Itoa(asTrans), "is reserved (RFC 6793)", allowedASN)
	}
	return nil
}
