package lb

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Validate checks every field of a service to be created or replaced. It returns a *FieldError for
// the first invalid one. A valid service can be compiled, whatever else exists; checks against
// other services (owners, totals) are the store's.
func (s Service) Validate() error {
	if err := s.Key.Validate(); err != nil {
		return err
	}
	if err := wordError(FieldMode, s.Mode, modes()); err != nil {
		return err
	}
	if err := wordError(FieldSelect, s.Algorithm, algorithms()); err != nil {
		return err
	}
	if err := s.validateMode(); err != nil {
		return err
	}
	if err := s.validateSecondary(); err != nil {
		return err
	}
	if err := ValidateName(s.Name); err != nil {
		return err
	}
	if err := validateIdle(s.IdleTimeout); err != nil {
		return err
	}
	if err := s.validatePersist(); err != nil {
		return err
	}
	if err := s.validateRefusal(); err != nil {
		return err
	}
	if err := s.validateSynProtect(); err != nil {
		return err
	}
	if err := s.validateLimits(); err != nil {
		return err
	}
	if err := s.validateTunnel(); err != nil {
		return err
	}
	if err := s.validateSources(); err != nil {
		return err
	}
	if err := s.validateMonitor(); err != nil {
		return err
	}
	if err := s.validateClosing(); err != nil {
		return err
	}
	if err := s.validateBackups(); err != nil {
		return err
	}
	if err := s.validateSlowStart(); err != nil {
		return err
	}
	if err := s.validateOutlier(); err != nil {
		return err
	}
	return s.validateEndpoints()
}

// Validate checks a key by itself.
func (k Key) Validate() error {
	if err := wordError(FieldProtocol, k.Protocol, protocols()); err != nil {
		return err
	}
	if err := addrForm(FieldVIP, k.VIP); err != nil {
		return err
	}
	if !k.VIP.IsUnspecified() { // Service.Validate checks which mode that needs
		if err := addrUse(FieldVIP, k.VIP); err != nil {
			return err
		}
	}
	return k.validatePorts()
}

func (k Key) validatePorts() error {
	switch {
	case !k.Protocol.hasPorts() && (k.Port != 0 || k.PortMax != 0):
		return NewFieldError(FieldPort, strconv.Itoa(int(max(k.Port, k.PortMax))), "is given, and "+k.Protocol.String()+" has no ports", "0")
	case k.Port == 0 && k.Protocol.hasPorts():
		return NewFieldError(FieldPort, "0", "is zero", "1 to 65535")
	case k.PortMax != 0 && k.PortMax <= k.Port:
		return NewFieldError(FieldPortMax, strconv.Itoa(int(k.PortMax)), "is not above the first, "+strconv.Itoa(int(k.Port)),
			"0 (one port), or up to 65535")
	}
	return nil
}

func (s Service) validateEndpoints() error {
	n := len(s.Endpoints)
	if n == 0 || n > MaxEndpointsPerService {
		reason := "is too many"
		if n == 0 {
			reason = "is too few"
		}
		return NewFieldError(FieldEndpoints, strconv.Itoa(n), reason, "1 to "+strconv.Itoa(MaxEndpointsPerService))
	}
	for _, e := range s.Endpoints {
		if err := s.ValidateEndpoint(e); err != nil {
			return err
		}
	}
	if at, twice := repeated(s.Endpoints); twice {
		return NewFieldError(FieldEndpoint, at.String(), "is given twice", "each address and port once")
	}
	return nil
}

// repeated finds an endpoint that is given twice.
func repeated(list []Endpoint) (at netip.AddrPort, twice bool) {
	const few = 16 // up to this many, comparing each pair is faster than a map
	if len(list) <= few {
		for i, e := range list {
			for _, o := range list[:i] {
				if e.Port == o.Port && e.Addr == o.Addr {
					return e.AddrPort(), true
				}
			}
		}
		return at, false
	}
	seen := make(map[netip.AddrPort]struct{}, len(list))
	for _, e := range list {
		at = e.AddrPort()
		if _, twice = seen[at]; twice {
			return at, true
		}
		seen[at] = struct{}{}
	}
	return at, false
}

// ValidateEndpoint checks whether the service could have this endpoint.
func (s Service) ValidateEndpoint(e Endpoint) error {
	if err := addrUse(FieldEndpointAddress, e.Addr); err != nil {
		return err
	}
	if err := s.validateFamily(e); err != nil {
		return err
	}
	if err := s.validateEndpointPorts(e); err != nil {
		return err
	}
	if (e.Addr == s.VIP || slices.Contains(s.Secondary, e.Addr)) && e.Port >= s.Port && e.Port <= max(s.Port, s.PortMax) {
		return NewFieldError(FieldEndpoint, e.AddrPort().String(), "is the service itself", "another address or port")
	}
	return nil
}

func (s Service) validateEndpointPorts(e Endpoint) error {
	switch last := int(e.Port) + int(s.PortMax) - int(s.Port); {
	case !s.Protocol.hasPorts() && (e.Port != 0 || e.PortMax != 0):
		return NewFieldError(FieldEndpointPort, strconv.Itoa(int(max(e.Port, e.PortMax))),
			"is given, and "+s.Protocol.String()+" has no ports", "0")
	case e.Port == 0 && s.Protocol.hasPorts():
		return NewFieldError(FieldEndpointPort, "0", "is zero", "1 to 65535")
	case s.Mode == ModeDSR && e.Port != s.Port:
		return NewFieldError(FieldEndpointPort, strconv.Itoa(int(e.Port)), "is not the service's, and mode dsr keeps ports",
			strconv.Itoa(int(s.Port)))
	case s.Mode == ModeDSR && e.PortMax != s.PortMax:
		return NewFieldError(FieldEndpointPortMax, strconv.Itoa(int(e.PortMax)), "is not the service's, and mode dsr keeps ports",
			strconv.Itoa(int(s.PortMax)))
	case e.PortMax == 0:
		return nil
	case s.PortMax == 0:
		return NewFieldError(FieldEndpointPortMax, strconv.Itoa(int(e.PortMax)), "makes a range, and the service has one port", "0")
	case last > 65535:
		return NewFieldError(FieldEndpointPort, strconv.Itoa(int(e.Port)), "leaves no room for all ports of the service",
			"1 to "+strconv.Itoa(65535-int(s.PortMax)+int(s.Port)))
	case int(e.PortMax) != last:
		return NewFieldError(FieldEndpointPortMax, strconv.Itoa(int(e.PortMax)), "does not make as many ports as the service has",
			strconv.Itoa(last)+", or 0 (all go to port "+strconv.Itoa(int(e.Port))+")")
	}
	return nil
}

// ValidateName checks the name of a service; "" means none. A name is part of URL paths, so it has
// no slash and is no dot segment, and of tables, so it prints on one line.
func ValidateName(name string) error {
	reason := ""
	switch {
	case utf8.RuneCountInString(name) > MaxNameLength:
		reason = "is too long"
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		reason = "does not print"
	case strings.ContainsAny(name, `/\`):
		reason = "has a slash"
	case name == "." || name == "..":
		reason = "is a path"
	case name != strings.TrimSpace(name):
		reason = "begins or ends with a space"
	default:
		return nil
	}
	return NewFieldError(FieldName, name, reason,
		"up to "+strconv.Itoa(MaxNameLength)+" printable characters without slashes")
}

func validateIdle(d time.Duration) error {
	const allowed = "0s (the default of the protocol) to 86400s, whole seconds"
	switch {
	case d < 0 || d > MaxIdleTimeout:
		return NewFieldError(FieldIdleTimeout, durationText(d), "is out of range", allowed)
	case d%time.Second != 0:
		return NewFieldError(FieldIdleTimeout, durationText(d), "is not whole seconds", allowed)
	}
	return nil
}
