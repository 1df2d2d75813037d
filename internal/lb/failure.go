package lb

import (
	"slices"
	"time"
)

// Closing is the treatment of an endpoint's open TCP and SCTP connections when it is removed or
// goes down.
type Closing uint8

// The values of --on-remove and --on-fail.
const (
	ClosingKeep Closing = iota
	ClosingDrain
	ClosingReset
)

const (
	// DefaultDrainTime is how long ClosingDrain leaves connections open by default.
	DefaultDrainTime = time.Minute
	// MaxDrainTime is the longest Service.DrainTime.
	MaxDrainTime = 24 * time.Hour
)

func closings() []choice[Closing] {
	return []choice[Closing]{
		{value: ClosingKeep, word: "keep", help: "they continue until they end on their own"},
		{value: ClosingDrain, word: "drain", help: "those still open after --drain-time are reset"},
		{value: ClosingReset, word: "reset", help: "both ends get a RST or ABORT at once, up to 1,000 connections per second"},
	}
}

// String returns the word in flags, JSON and text.
func (c Closing) String() string { return wordOf("closing", c, closings()) }

// ClosingDelay returns the time until open connections are reset; false: they are not.
func (s *Service) ClosingDelay(c Closing) (time.Duration, bool) {
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

// closingFields returns the fields about open connections of endpoints that are removed or down.
func closingFields() []Field[Service] {
	const first = 38 // position in a record
	return []Field[Service]{
		{
			Name: FieldOnRemove, Text: "on-remove", Record: "onRemove", Position: first, Since: closingFormat,
			Property: "serviceArguments.onRemove", Flag: "on-remove",
			Help: "how to treat TCP and SCTP connections of an endpoint that is removed from the service",
			form: word(func(s *Service) *Closing { return &s.OnRemove }, closings),
		},
		{
			Name: FieldOnFail, Text: "on-fail", Record: "onFail", Position: first + 1, Since: closingFormat,
			Property: "serviceArguments.onFail", Flag: "on-fail",
			Help: "how to treat TCP and SCTP connections of an endpoint that is down",
			form: word(func(s *Service) *Closing { return &s.OnFail }, closings),
		},
		{
			Name: FieldDrainTime, Text: "drain-time", Record: "drainTime", Position: first + 2, Since: closingFormat,
			Property: "serviceArguments.drainTime", Flag: "drain-time",
			Help:    "seconds that --on-remove=drain and --on-fail=drain keep connections open; 0 is 60",
			Allowed: "0 (60) to 86400 seconds",
			form:    seconds(func(s *Service) *time.Duration { return &s.DrainTime }, MaxDrainTime),
		},
	}
}

// validateClosing checks OnRemove, OnFail and DrainTime.
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
		return NewFieldError(FieldDrainTime, durationText(s.DrainTime), "is given, but nothing is drained", "0s, or on-remove or on-fail drain")
	case !s.Protocol.HasHandshake() && s.OnRemove != ClosingKeep:
		return NewFieldError(FieldOnRemove, s.OnRemove.String(), "is for TCP and SCTP: flows of "+s.Protocol.String()+" end at once", ClosingKeep.String())
	case !s.Protocol.HasHandshake() && s.OnFail != ClosingKeep:
		return NewFieldError(FieldOnFail, s.OnFail.String(), "is for TCP and SCTP: flows of "+s.Protocol.String()+" end at once", ClosingKeep.String())
	}
	return nil
}

// AllDown is the treatment of new connections while no endpoint of a service is up.
type AllDown uint8

// The choices.
const (
	AllDownRefuse AllDown = iota
	AllDownPanic
)

func allDowns() []choice[AllDown] {
	return []choice[AllDown]{
		{value: AllDownRefuse, word: "refuse", help: "refuse them as set by --refuse"},
		{value: AllDownPanic, word: "panic", help: "distribute them to all endpoints as if all were up"},
	}
}

// String returns the word of flags, JSON and text.
func (a AllDown) String() string { return wordOf("all down", a, allDowns()) }

// Outlier controls whether a service ejects endpoints with which clients' handshakes fail, as seen
// by the data path.
type Outlier uint8

// The choices.
const (
	OutlierAuto Outlier = iota
	OutlierOn
	OutlierOff
)

func outliers() []choice[Outlier] {
	return []choice[Outlier]{
		{value: OutlierAuto, word: "auto", help: "for TCP services with two or more endpoints whose answers are seen; with select=hash and persist, resets do not count"},
		{value: OutlierOn, word: "on", help: "resets count with any algorithm"},
		{value: OutlierOff, word: "off", help: "never: only probes decide"},
	}
}

// String returns the word of flags, JSON and text.
func (o Outlier) String() string { return wordOf("outlier detection", o, outliers()) }

// outlierFields returns the field about outlier detection.
func outlierFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldOutlier, Text: "outlier", Record: "outlier", Position: 43, Since: closingFormat + 1,
		Property: "serviceArguments.outlier", Flag: "outlier",
		Help: "eject endpoints temporarily when client handshakes with them fail, even without probes",
		form: word(func(s *Service) *Outlier { return &s.Outlier }, outliers),
	}}
}

// outlierObstacle returns why the data path cannot judge endpoints by handshakes, or "" if it can.
func (s *Service) outlierObstacle() (why string) {
	switch {
	case s.Protocol != TCP:
		return "handshakes of " + s.Protocol.String() + " are not counted"
	case s.Mode == ModeDSR:
		return "answers are not seen in mode dsr"
	case s.PortMax != 0:
		return "a range includes ports without a listener"
	}
	return ""
}

// JudgesHandshakes reports whether clients' handshakes are evidence for the health of the service's
// endpoints. A single endpoint is judged, too, although it is never ejected.
func (s *Service) JudgesHandshakes() bool {
	return s.Outlier != OutlierOff && s.outlierObstacle() == "" && len(s.Endpoints) > 0
}

// EjectsOutliers reports whether an endpoint gets no new connections while clients' handshakes with
// it fail.
func (s *Service) EjectsOutliers() bool { return s.JudgesHandshakes() && len(s.Endpoints) > 1 }

// ConsidersResets reports whether each connection that an endpoint resets, or never answers, counts
// against it. If the client's address selects the endpoint, one client could get that endpoint
// ejected. So resets do not count then, and unanswered connections count once per client.
func (s *Service) ConsidersResets() bool {
	return s.Outlier == OutlierOn || !slices.Contains([]Algorithm{Hash, Persist}, s.Algorithm)
}

func (s Service) validateOutlier() error {
	if err := wordError(FieldOutlier, s.Outlier, outliers()); err != nil {
		return err
	}
	if why := s.outlierObstacle(); s.Outlier == OutlierOn && why != "" {
		return NewFieldError(FieldOutlier, s.Outlier.String(), "is set, but "+why, "auto or off")
	}
	return nil
}
