package lb

import "time"

// Closing is how open TCP connections of an endpoint are handled when it is removed or goes down.
type Closing uint8

// The choices.
const (
	ClosingKeep Closing = iota
	ClosingDrain
	ClosingReset
)

const (
	// DefaultDrainTime is how long ClosingDrain leaves connections open by default.
	DefaultDrainTime = time.Minute
	// MaxDrainTime is the longest.
	MaxDrainTime = 24 * time.Hour
)

func closings() []choice[Closing] {
	return []choice[Closing]{
		{value: ClosingKeep, word: "keep", help: "they continue until they end on their own"},
		{value: ClosingDrain, word: "drain", help: "those still open after --drain-time are reset"},
		{value: ClosingReset, word: "reset", help: "both ends get a RST at once, up to 1,000 connections per second"},
	}
}

// String returns the word of flags, JSON and text.
func (c Closing) String() string { return wordOf("closing", c, closings()) }

// After returns how long connections go on; false: until they end by themselves.
func (s *Service) After(c Closing) (time.Duration, bool) {
	switch c {
	case ClosingDrain:
		if s.DrainTime == 0 {
			return DefaultDrainTime, true
		}
		return s.DrainTime, true
	case ClosingReset:
		return 0, true
	}
	return 0, false
}

// closingFormat is the first record format with Closing.
const closingFormat = 5

// closingFields returns the fields with a Closing.
func closingFields() []Field[Service] {
	const first = 38 // place in a record
	return []Field[Service]{
		{
			Name: FieldOnRemove, Text: "on-remove", Record: "onRemove", Place: first, Since: closingFormat,
			Property: "serviceArguments.onRemove", Flag: "on-remove",
			Help: "how to treat TCP connections of an endpoint that is removed from the service",
			form: wordOfField(func(s *Service) *Closing { return &s.OnRemove }, closings),
		},
		{
			Name: FieldOnFail, Text: "on-fail", Record: "onFail", Place: first + 1, Since: closingFormat,
			Property: "serviceArguments.onFail", Flag: "on-fail",
			Help: "how to treat TCP connections of an endpoint that is down",
			form: wordOfField(func(s *Service) *Closing { return &s.OnFail }, closings),
		},
		{
			Name: FieldDrainTime, Text: "drain-time", Record: "drainTime", Place: first + 2, Since: closingFormat,
			Property: "serviceArguments.drainTime", Flag: "drain-time",
			Help:    "seconds that --on-remove=drain and --on-fail=drain keep connections open; 0 is 60",
			Allowed: "0 (60) to 86400 seconds",
			form:    seconds(func(s *Service) *time.Duration { return &s.DrainTime }, MaxDrainTime),
		},
	}
}

// validateClosing checks how open connections are to be closed.
func (s *Service) validateClosing() error {
	if err := wordError(FieldOnRemove, s.OnRemove, closings()); err != nil {
		return err
	}
	if err := wordError(FieldOnFail, s.OnFail, closings()); err != nil {
		return err
	}
	switch {
	case s.DrainTime < 0 || s.DrainTime > MaxDrainTime || s.DrainTime%time.Second != 0:
		return NewFieldError(FieldDrainTime, durationText(s.DrainTime), "is out of range", "0s (60s) to 86400s, whole seconds")
	case s.DrainTime != 0 && s.OnRemove != ClosingDrain && s.OnFail != ClosingDrain:
		return NewFieldError(FieldDrainTime, durationText(s.DrainTime), "is given, and nothing is drained", "0s, or on-remove or on-fail drain")
	case s.Protocol != TCP && s.OnRemove != ClosingKeep:
		return NewFieldError(FieldOnRemove, s.OnRemove.String(), "is for TCP: flows of "+s.Protocol.String()+" end at once", ClosingKeep.String())
	case s.Protocol != TCP && s.OnFail != ClosingKeep:
		return NewFieldError(FieldOnFail, s.OnFail.String(), "is for TCP: flows of "+s.Protocol.String()+" end at once", ClosingKeep.String())
	}
	return nil
}
