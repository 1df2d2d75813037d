package lb

// SynProtect is when a service challenges unknown clients before it opens a connection, against SYN
// floods from forged addresses.
type SynProtect uint8

// The choices.
const (
	SynProtectAuto SynProtect = iota
	SynProtectAlways
	SynProtectOff
)

func synProtects() []choice[SynProtect] {
	return []choice[SynProtect]{
		{value: SynProtectAuto, word: "auto", help: "while too many connections are half-open"},
		{value: SynProtectAlways, word: "always", help: "always"},
		{value: SynProtectOff, word: "off", help: "never"},
	}
}

// String returns the word of flags, JSON and text.
func (p SynProtect) String() string { return wordOf("SYN protection", p, synProtects()) }

func (s Service) validateSynProtect() error {
	if err := wordError(FieldSynProtect, s.SynProtect, synProtects()); err != nil {
		return err
	}
	if s.SynProtect != SynProtectAuto && s.Protocol != TCP {
		return NewFieldError(FieldSynProtect, s.SynProtect.String(), "is given, and "+s.Protocol.String()+" has no SYNs", SynProtectAuto.String())
	}
	return nil
}
