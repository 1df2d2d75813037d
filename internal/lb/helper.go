package lb

import "slices"

// Helper is the application protocol of a service whose connections have related connections at
// other ports.
type Helper uint8

// The choices.
const (
	HelperNone Helper = iota
	HelperTFTP
	HelperFTP
)

func helpers() []choice[Helper] {
	return []choice[Helper]{
		{value: HelperNone, word: "none", help: "every connection is to the service's port"},
		{value: HelperTFTP, word: "tftp", help: "TFTP servers answer from new ports"},
		{value: HelperFTP, word: "ftp", help: "data connections of FTP follow their control connection"},
	}
}

// MaxTFTPPorts is the maximum number of different ports of TFTP servers, in all services.
const MaxTFTPPorts = 2

// String returns the word of flags, JSON and text.
func (h Helper) String() string { return wordOf("helper", h, helpers()) }

// helperFormat is the first record format with a Helper.
const helperFormat = proxyFormat + 1

func helperFields() []Field[Service] {
	return []Field[Service]{{
		Name: FieldHelper, Text: "helper", Record: "helper", Position: 55, Since: helperFormat,
		Property: "serviceArguments.helper", Flag: "helper",
		Help: "which related connections follow those of the service to its endpoints",
		form: word(func(s *Service) *Helper { return &s.Helper }, helpers),
	}}
}

// protocol returns the protocol of services with this helper.
func (h Helper) protocol() Protocol {
	if h == HelperFTP {
		return TCP
	}
	return UDP
}

// validateHelper checks that the data path sees both directions of the service's packets.
func (s Service) validateHelper() error {
	if err := wordError(FieldHelper, s.Helper, helpers()); err != nil || s.Helper == HelperNone {
		return err
	}
	word := s.Helper.String()
	switch {
	case s.Protocol != s.Helper.protocol():
		return NewFieldError(FieldHelper, word, "is for "+s.Helper.protocol().String()+", and the service is of "+s.Protocol.String(), HelperNone.String()+", or protocol "+s.Helper.protocol().String())
	case !slices.Contains(helperModes(), s.Mode):
		return NewFieldError(FieldHelper, word, "is set, but mode is "+s.Mode.String(), HelperNone.String()+", or mode default, auto, onearm or fullnat")
	case s.PortMax != 0:
		return NewFieldError(FieldHelper, word, "is for services with one port", HelperNone.String()+", or a single port")
	case s.ProxyProtocol:
		return NewFieldError(FieldHelper, word, "is given together with the PROXY protocol", HelperNone.String()+", or a service without PROXY protocol")
	case s.Algorithm == QUIC:
		return NewFieldError(FieldHelper, word, "is set, but select is "+QUIC.String(), HelperNone.String()+", or another algorithm")
	}
	return nil
}

// helperModes returns the modes in which every packet of a connection passes this machine.
func helperModes() []Mode { return []Mode{ModeDefault, ModeAuto, ModeOneArm, ModeFullNAT} }
