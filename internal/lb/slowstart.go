package lb

import "time"

// The least and the most that an endpoint that comes may take to have all of its share.
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

// HasBackups tells whether not all endpoints are of one level.
func (s *Service) HasBackups() bool { return len(s.levels()) > 1 }
