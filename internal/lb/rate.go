package lb

import (
	"math"
	"strconv"
	"strings"
)

// Limits of a rate, in bits or packets per second.
const (
	MinBitRate    = 1_000
	MaxBitRate    = 1_000_000_000_000
	MaxPacketRate = 1_000_000_000
)

// Rate is so much a second. The zero value is none.
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

// ParseRate reads a rate: 10kbit, 1.5gbit, 5000pps. A number alone is of Mbit/s, as the contract
// has it.
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
		return Rate{}, NewFieldError(field, text, "is not a rate", "Mbit/s, or a number with bit, kbit, mbit, gbit, pps, kpps or mpps")
	}
	if n *= unit.size; n > MaxBitRate || n < 1 {
		n = 0 // is refused
	}
	r := Rate{PerSecond: uint64(math.Round(n)), Packets: unit.packets}
	return r, r.validate(field, text)
}

func (r Rate) validate(field, text string) error {
	switch {
	case r.Packets && (r.PerSecond < 1 || r.PerSecond > MaxPacketRate):
		return NewFieldError(field, text, "is out of range", "1pps to 1000mpps")
	case !r.Packets && (r.PerSecond < MinBitRate || r.PerSecond > MaxBitRate):
		return NewFieldError(field, text, "is out of range", "1kbit to 1000gbit")
	}
	return nil
}

// String writes it as ParseRate parses it: in the largest unit of which it is a whole number.
func (r Rate) String() string {
	for _, u := range rateUnits() {
		if size := uint64(u.size); u.packets == r.Packets && r.PerSecond%size == 0 && r.PerSecond > 0 {
			return strconv.FormatUint(r.PerSecond/size, 10) + u.name
		}
	}
	return "0"
}

// Megabits returns the rate in the contract's unit; 0 for one of packets.
func (r Rate) Megabits() float64 {
	if r.Packets {
		return 0
	}
	return float64(r.PerSecond) / 1e6
}
