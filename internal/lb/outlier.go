package lb

import "slices"

// Outlier controls whether a service takes out endpoints with which clients' handshakes fail, as
// seen by the data path.
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

// outlierFields has the field for it. Place and format are the next ones.
func outlierFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldOutlier, Text: "outlier", Record: "outlier", Place: 43, Since: closingFormat + 1,
		Property: "serviceArguments.outlier", Flag: "outlier",
		Help: "eject endpoints temporarily when client handshakes with them fail, even without probes",
		form: wordOfField(func(s *Service) *Outlier { return &s.Outlier }, outliers),
	}}
}

// seesHandshakes returns why the data path cannot judge endpoints by handshakes; "" if it can.
func (s *Service) seesHandshakes() (why string) {
	switch {
	case s.Protocol != TCP:
		return s.Protocol.String() + " has no handshakes"
	case s.Mode == ModeDSR:
		return "answers are not seen in mode dsr"
	case s.PortMax != 0:
		return "a range has ports that nobody listens on"
	}
	return ""
}

// JudgesHandshakes reports whether clients' handshakes count as evidence for the state of the
// service's endpoints. The only endpoint of a service is judged, too, and stays in rotation.
func (s *Service) JudgesHandshakes() bool {
	return s.Outlier != OutlierOff && s.seesHandshakes() == "" && len(s.Endpoints) > 0
}

// TakesOutliersOut reports whether an endpoint leaves the rotation when clients' handshakes with it
// fail.
func (s *Service) TakesOutliersOut() bool { return s.JudgesHandshakes() && len(s.Endpoints) > 1 }

// HeedsResets reports whether each connection that an endpoint resets, or never answers, counts
// against it. Where the client's address decides which endpoint it gets, one client could have that
// endpoint taken out: resets do not count, and of connections without an answer, each client counts
// once.
func (s *Service) HeedsResets() bool {
	return s.Outlier == OutlierOn || !slices.Contains([]Algorithm{Hash, Persist}, s.Algorithm)
}

func (s Service) validateOutlier() error {
	if err := wordError(FieldOutlier, s.Outlier, outliers()); err != nil {
		return err
	}
	if why := s.seesHandshakes(); s.Outlier == OutlierOn && why != "" {
		return NewFieldError(FieldOutlier, s.Outlier.String(), "is given, and "+why, "auto or off")
	}
	return nil
}
