package lb

import "time"

// Limits of the time that a new endpoint takes to reach its full share.
const (
	MinSlowStart = time.Second
	MaxSlowStart = time.Hour
)

func slowStartFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldSlowStart, Text: "slow-start", Record: "slowStart", Place: 42, Since: closingFormat,
		Property: "serviceArguments.slowStart", Flag: "slow-start",
		Help: "ramp up new connections to an added or recovered endpoint over this time, such as 30s (default: at once)",
		form: period(func(s *Service) *time.Duration { return &s.SlowStart }),
	}}
}

func (s *Service) validateSlowStart() error {
	if d := s.SlowStart; d != 0 && (d < MinSlowStart || d > MaxSlowStart) {
		return NewFieldError(FieldSlowStart, d.String(), "is out of range", "nothing, or 1s to 1h")
	}
	return nil
}

// HasBackups reports whether the endpoints have several levels.
func (s *Service) HasBackups() bool { return len(s.levels()) > 1 }
