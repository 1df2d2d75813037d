package lb

import (
	"cmp"
	"strconv"
	"strings"
)

// Policer bounds a rate. Packets are green, yellow or red, by RFC 2697 (one rate) or RFC 2698 (two
// rates); red ones are dropped.
type Policer struct {
	Name           string     `json:"name"`
	OneRate        bool       `json:"oneRate,omitempty"`
	ColorAware     bool       `json:"colorAware,omitempty"` // a packet is at best the color of its DSCP (RFC 2597)
	Committed      Rate       `json:"committed"`
	Peak           Rate       `json:"peak,omitzero"`            // of two rates
	CommittedBurst uint64     `json:"committedBurst,omitempty"` // bytes, or packets; 0: of the rate
	ExcessBurst    uint64     `json:"excessBurst,omitempty"`    // of the peak rate, or the excess; 0: of the rate
	Attachment     Attachment `json:"attachment"`
}

// PolicerTypeWord returns the name that RFC 2697 and RFC 2698 give the two types.
func PolicerTypeWord(oneRate bool) string {
	if oneRate {
		return "srTCM"
	}
	return "trTCM"
}

// ParsePolicerType parses the contract's number or the word, and reports whether the policer has
// one rate.
func ParsePolicerType(text string) (oneRate bool, err error) {
	switch {
	case text == "1", strings.EqualFold(text, PolicerTypeWord(true)):
		return true, nil
	case text == "", text == "0", strings.EqualFold(text, PolicerTypeWord(false)):
		return false, nil
	}
	return false, NewFieldError("type", text, "is not a type of policer", "0 or trTCM (two rates), 1 or srTCM (one rate)")
}

const (
	// defaultBurst is the time of the default burst at the rate, in a fraction of a second,
	defaultBurstPerSecond = 10
	// and how much that is at least: ten packets.
	minBurstBytes   = 15000
	minBurstPackets = 10
	// maxBurstSeconds is how long the rate may take for a burst.
	maxBurstSeconds = 24 * 3600
)

// Bursts returns the sizes of the buckets, in bytes or packets.
func (p *Policer) Bursts() (committed, excess uint64) {
	committed = cmp.Or(p.CommittedBurst, defaultBurst(p.Committed))
	if p.OneRate {
		return committed, cmp.Or(p.ExcessBurst, 2*committed)
	}
	return committed, cmp.Or(p.ExcessBurst, defaultBurst(p.Peak))
}

func defaultBurst(r Rate) uint64 {
	if r.Packets {
		return max(r.PerSecond/defaultBurstPerSecond, minBurstPackets)
	}
	return max(r.PerSecond/8/defaultBurstPerSecond, minBurstBytes)
}

// Validate checks all fields.
func (p Policer) Validate() error {
	if err := validateIdent(p.Name); err != nil {
		return err
	}
	if err := p.Committed.validate(FieldCommittedRate, p.Committed.String()); err != nil {
		return err
	}
	if !p.OneRate {
		if err := p.Peak.validate(FieldPeakRate, p.Peak.String()); err != nil {
			return err
		}
		if p.Peak.Packets != p.Committed.Packets {
			return NewFieldError(FieldPeakRate, p.Peak.String(), "is of another unit than the committed rate "+p.Committed.String(), "both of bits, or both of packets")
		}
		if p.Peak.PerSecond < p.Committed.PerSecond {
			return NewFieldError(FieldPeakRate, p.Peak.String(), "is less than the committed rate", p.Committed.String()+" or more")
		}
	}
	committed, excess := p.Bursts()
	peak := p.Committed
	if !p.OneRate {
		peak = p.Peak
	}
	if err := validateBurst(FieldCommittedBurst, committed, p.Committed); err != nil {
		return err
	}
	if err := validateBurst(FieldExcessBurst, excess, peak); err != nil {
		return err
	}
	return p.Attachment.Validate()
}

func validateBurst(field string, burst uint64, r Rate) error {
	most, unit := r.PerSecond*maxBurstSeconds, " packets"
	if !r.Packets {
		most, unit = most/8, " bytes"
	}
	if burst > most {
		return NewFieldError(field, strconv.FormatUint(burst, 10), "is more than a day of its rate", "up to "+strconv.FormatUint(most, 10)+unit)
	}
	return nil
}

// validateIdent refuses names of policers and mirrors that a path of the API cannot have.
func validateIdent(name string) error {
	if name == "" {
		return NewFieldError(FieldIdent, "", "is missing", "a name")
	}
	return ValidateName(name)
}

// Normal returns the policer in the one form in which it is stored.
func (p Policer) Normal() Policer {
	if p.OneRate {
		p.Peak = Rate{}
	}
	p.Attachment = p.Attachment.Normal()
	return p
}

// Policed counts a policer's results by color: green, yellow, red.
type Policed struct {
	Packets, Bytes [3]uint64
}

// PolicerStats are a policer's state and counters.
type PolicerStats struct {
	Policed
	Attached int // services, prefixes or interfaces that have it now
}
