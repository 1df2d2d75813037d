package policy

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// Policer bounds a rate. Packets are green, yellow or red, by RFC 2697 (one rate) or RFC 2698 (two
// rates); red ones are dropped.
type Policer struct {
	Name           string     `json:"name"`
	OneRate        bool       `json:"oneRate,omitempty"`
	ColorAware     bool       `json:"colorAware,omitempty"` // a packet's color is never better than that of its DSCP (RFC 2597)
	Committed      Rate       `json:"committed"`
	Peak           Rate       `json:"peak,omitzero"`            // with two rates
	CommittedBurst uint64     `json:"committedBurst,omitempty"` // bytes, or packets; 0: derived from the rate
	ExcessBurst    uint64     `json:"excessBurst,omitempty"`    // excess burst, or that of the peak rate; 0: derived from the rate
	Attachment     Attachment `json:"attachment"`
}

// PolicerTypeWord returns the name that RFC 2697 and RFC 2698 give the two types.
func PolicerTypeWord(oneRate bool) string {
	if oneRate {
		return "srTCM"
	}
	return "trTCM"
}

// ParsePolicerType parses the existing loxilb's number or the word, and reports whether the policer
// has one rate.
func ParsePolicerType(text string) (oneRate bool, err error) {
	switch {
	case text == "1", strings.EqualFold(text, PolicerTypeWord(true)):
		return true, nil
	case text == "", text == "0", strings.EqualFold(text, PolicerTypeWord(false)):
		return false, nil
	}
	return false, lb.NewFieldError("type", text, "is not a type of policer", "0 or trTCM (two rates), 1 or srTCM (one rate)")
}

const (
	// defaultBurstPerSecond makes the default burst a tenth of a second of the rate.
	defaultBurstPerSecond = 10
	// minBurstBytes and minBurstPackets are ten packets.
	minBurstBytes   = 15000
	minBurstPackets = 10
	// maxBurstSeconds limits a burst to what its rate allows in this time.
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
	if err := p.Committed.validate(lb.FieldCommittedRate, p.Committed.String()); err != nil {
		return err
	}
	if !p.OneRate {
		if err := p.Peak.validate(lb.FieldPeakRate, p.Peak.String()); err != nil {
			return err
		}
		if p.Peak.Packets != p.Committed.Packets {
			return lb.NewFieldError(lb.FieldPeakRate, p.Peak.String(), "is of another unit than the committed rate "+p.Committed.String(), "both of bits, or both of packets")
		}
		if p.Peak.PerSecond < p.Committed.PerSecond {
			return lb.NewFieldError(lb.FieldPeakRate, p.Peak.String(), "is less than the committed rate", p.Committed.String()+" or more")
		}
	}
	committed, excess := p.Bursts()
	peak := p.Committed
	if !p.OneRate {
		peak = p.Peak
	}
	if err := validateBurst(lb.FieldCommittedBurst, committed, p.Committed); err != nil {
		return err
	}
	if err := validateBurst(lb.FieldExcessBurst, excess, peak); err != nil {
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
		return lb.NewFieldError(field, strconv.FormatUint(burst, 10), "is more than a day of its rate", "up to "+strconv.FormatUint(most, 10)+unit)
	}
	return nil
}

// validateIdent checks the name of a policer or mirror, which is part of paths of the API.
func validateIdent(name string) error {
	if name == "" {
		return lb.NewFieldError(lb.FieldIdent, "", "is missing", "a name")
	}
	return lb.ValidateName(lb.FieldName, name)
}

// Normal returns the policer in the form in which it is stored.
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
	Attached int // services, prefixes or interfaces to which it applies now
}

// Limits of a rate, in bits or packets per second.
const (
	MinBitRate    = 1_000
	MaxBitRate    = 1_000_000_000_000
	MaxPacketRate = 1_000_000_000
)

// Rate is a number of bits or packets per second. The zero value is no rate.
type Rate struct {
	PerSecond uint64 `json:"perSecond"`
	Packets   bool   `json:"packets,omitempty"` // otherwise bits
}

// rateUnits returns the units that may follow a number.
func rateUnits() []rateUnit {
	return []rateUnit{
		{"gbit", 1e9, false}, {"mbit", 1e6, false}, {"kbit", 1e3, false}, {"bit", 1, false},
		{"mpps", 1e6, true}, {"kpps", 1e3, true}, {"pps", 1, true},
	}
}

type rateUnit struct {
	name    string
	size    float64
	packets bool
}

// ParseRate parses a rate: 10kbit, 1.5gbit, 5000pps. A number alone means Mbit/s, as in the
// existing loxilb.
func ParseRate(field, text string) (Rate, error) {
	number, unit := strings.ToLower(text), rateUnit{"", 1e6, false}
	for _, u := range rateUnits() {
		if before, found := strings.CutSuffix(number, u.name); found {
			number, unit = before, u
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) || strings.ContainsAny(number, "xXpPiInN_+") {
		return Rate{}, lb.NewFieldError(field, text, "is not a rate", "Mbit/s, or a number with bit, kbit, mbit, gbit, pps, kpps or mpps")
	}
	if n *= unit.size; n > MaxBitRate || n < 1 {
		n = 0 // validate refuses it; larger numbers could overflow
	}
	r := Rate{PerSecond: uint64(math.Round(n)), Packets: unit.packets}
	return r, r.validate(field, text)
}

func (r Rate) validate(field, text string) error {
	switch {
	case r.Packets && (r.PerSecond < 1 || r.PerSecond > MaxPacketRate):
		return lb.NewFieldError(field, text, "is out of range", "1pps to 1000mpps")
	case !r.Packets && (r.PerSecond < MinBitRate || r.PerSecond > MaxBitRate):
		return lb.NewFieldError(field, text, "is out of range", "1kbit to 1000gbit")
	}
	return nil
}

// String formats the rate for ParseRate, in the largest unit that gives a whole number.
func (r Rate) String() string {
	for _, u := range rateUnits() {
		if size := uint64(u.size); u.packets == r.Packets && r.PerSecond%size == 0 && r.PerSecond > 0 {
			return strconv.FormatUint(r.PerSecond/size, 10) + u.name
		}
	}
	return "0"
}

// Megabits returns the rate in Mbit/s; 0 for a rate of packets.
func (r Rate) Megabits() float64 {
	if r.Packets {
		return 0
	}
	return float64(r.PerSecond) / 1e6
}
