package kinds

import (
	"encoding/json"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb"
)

// DrainName is the name of the kind in messages and journals.
const DrainName = "drain"

// Drain registers endpoints that take no new connections.
func Drain() *Kind[lb.Drain, v1.Drain] {
	return &Kind[lb.Drain, v1.Drain]{
		Words: Words{Name: DrainName, Document: DrainDocument, Command: "drain", Aliases: []string{"drains"}, List: "drainAttr"},
		Stored: Stored[lb.Drain]{
			Key: lb.Drain.Key,
			Equal: func(a, b lb.Drain) bool {
				return a.Key() == b.Key() && a.Rate == b.Rate && sameDeadline(a.Deadline, b.Deadline)
			},
			Validate: lb.Drain.Validate,
			Format:   2,
			Encode:   encodeDrain,
			Decode:   decodeDrain,
			Max:      1024, // each applied service is compared with all drains
			Plural:   "endpoints that are drained",
			Shared:   true,
		},
	}
}

// deadlineSlack is the largest difference between two readings of one deadline.
const deadlineSlack = 10 * time.Millisecond

// sameDeadline compares deadlines by the wall clock, as users see them. Applying an export must
// change nothing, although exports are rounded, and although a deadline that was stored before the
// clock was set (monotime.Stored) has another wall time after each start.
func sameDeadline(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && b.IsZero()
	}
	return a.Round(0).Sub(b.Round(0)).Abs() <= deadlineSlack
}

// storedDrain is a drain with its deadline by two clocks: the wall clock may be set before the
// drain is read.
type storedDrain struct {
	lb.Drain
	Boot   string        `json:"boot,omitempty"`
	Uptime time.Duration `json:"uptime,omitempty"` // nanoseconds
}

func encodeDrain(d lb.Drain) (format int, object []byte, err error) {
	stored := storedDrain{Drain: d}
	format = 1
	if !d.Deadline.IsZero() {
		m := monotime.NewStored(d.Deadline)
		stored.Deadline, stored.Boot, stored.Uptime = m.At, m.Boot, m.Uptime
		format = 2
	}
	object, err = json.Marshal(stored)
	return format, object, err
}

func decodeDrain(_ int, object []byte) (lb.Drain, error) {
	var d storedDrain
	err := decodeStrict(object, &d)
	d.Deadline = monotime.Stored{At: d.Deadline, Boot: d.Boot, Uptime: d.Uptime}.Time()
	return d.Drain, err
}
