package lb

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AddrPort returns where the endpoint listens.
func (e Endpoint) AddrPort() netip.AddrPort { return netip.AddrPortFrom(e.Addr, e.Port) }

// String writes IP:PORT or IP:PORT-PORTMAX, IPv6 in brackets, followed by :WEIGHT if the weight is
// not 1, @LEVEL for a backup, and #ID if the endpoint has a server ID.
func (e Endpoint) String() string {
	s := e.AddrPort().String()
	if e.PortMax != 0 {
		s += "-" + strconv.Itoa(int(e.PortMax))
	}
	if e.Weight != 1 {
		s += ":" + strconv.Itoa(int(e.Weight))
	}
	if e.Backup != 0 {
		s += "@" + strconv.Itoa(int(e.Backup))
	}
	if e.ServerID != "" {
		s += "#" + e.ServerID
	}
	return s
}

// ParseEndpoint is the inverse of Endpoint.String: IP:PORT or IP:PORT:WEIGHT, optionally with
// @LEVEL and #ID, IPv6 in brackets; the default weight is 1.
func ParseEndpoint(s string) (Endpoint, error) {
	e, _, err := parseEndpoint(s)
	return e, err
}

// parseEndpoint also reports whether the weight was written.
func parseEndpoint(s string) (e Endpoint, weighted bool, err error) {
	text, backup, id, err := cutSuffixes(s)
	if err != nil {
		return e, false, err
	}
	host, rest, ok := splitHost(text)
	if !ok || rest == "" {
		return e, false, NewFieldError(FieldEndpoint, s, "is not an address and a port",
			"IP:PORT or IP:PORT:WEIGHT, IPv6 in brackets")
	}
	port, weight, weighted := strings.Cut(rest, ":")
	if !weighted {
		weight = "1"
	}
	e, err = endpointOf(host, port, weight)
	e.Backup, e.ServerID = backup, id
	return e, weighted, err
}

// ParseEndpointFlag parses an element of the command line's --endpoints: IP:WEIGHT, IP:PORT:WEIGHT,
// [v6]:WEIGHT, [v6]:PORT:WEIGHT, or a bare v6:WEIGHT, followed by @LEVEL for a backup, and by #ID.
// Without a port, Port is 0: the port of --tcp or --udp applies.
//
// A bare IPv6 address ends at the last colon: 2001:db8::1:1 is 2001:db8::1 with weight 1, never
// 2001:db8::1:1 without a weight. So the weight is required, and a port needs the brackets.
func ParseEndpointFlag(s string) (Endpoint, error) {
	text, backup, id, err := cutSuffixes(s)
	if err != nil {
		return Endpoint{}, err
	}
	e, err := parseEndpointFlag(text)
	e.Backup, e.ServerID = backup, id
	return e, err
}

// cutSuffixes cuts @LEVEL and #ID from the end of an endpoint's text.
func cutSuffixes(s string) (text string, backup uint8, id string, err error) {
	if text, id, err = cutServerID(s); err != nil {
		return text, 0, "", err
	}
	text, backup, err = cutBackup(text)
	return text, backup, id, err
}

func parseEndpointFlag(s string) (Endpoint, error) {
	const form = "IP:WEIGHT or IP:PORT:WEIGHT, IPv6 in brackets when it has a port"
	var host, rest string
	ok := true
	if strings.Count(s, ":") > 2 && !strings.HasPrefix(s, "[") {
		i := strings.LastIndexByte(s, ':')
		host, rest = s[:i], s[i+1:]
	} else {
		host, rest, ok = splitHost(s)
	}
	if !ok || host == "" {
		return Endpoint{}, NewFieldError(FieldEndpoint, s, "is not an address and a weight", form)
	}
	if rest == "" {
		return Endpoint{}, NewFieldError(FieldEndpoint, s, "has no weight", form)
	}
	port, weight, hasPort := strings.Cut(rest, ":")
	if !hasPort {
		port, weight = "0", port
	} else if port == "0" {
		return Endpoint{}, NewFieldError(FieldEndpointPort, port, "is zero", "1 to 65535")
	}
	return endpointOf(host, port, weight)
}

func endpointOf(host, port, weight string) (e Endpoint, err error) {
	if e.Addr, err = ParseAddr(FieldEndpointAddress, host); err != nil {
		return Endpoint{}, err
	}
	port, last, ranged := cutRange(port)
	if e.Port, err = ParsePort(FieldEndpointPort, port); err != nil {
		return Endpoint{}, err
	}
	if ranged {
		if e.Port == 0 {
			return Endpoint{}, NewFieldError(FieldEndpointPort, port, "is zero", "1 to 65535")
		}
		if e.PortMax, err = parseRealPort(FieldEndpointPortMax, last); err != nil {
			return Endpoint{}, err
		}
	}
	if e.Weight, err = ParseWeight(weight); err != nil {
		return Endpoint{}, err
	}
	return e, nil
}

// EndpointFields returns the fields of an endpoint. Text and records write them as one, by
// Endpoint.String.
func EndpointFields() []Field[Endpoint] {
	return []Field[Endpoint]{
		{
			Name: FieldEndpointAddress, Property: "endpointIP", Required: true,
			form: address(func(e *Endpoint) *netip.Addr { return &e.Addr }),
		},
		{
			Name: FieldEndpointPort, Property: "targetPort", Required: true, Allowed: "1 to 65535",
			form: number(func(e *Endpoint) *uint16 { return &e.Port }, 65535),
		},
		{
			Name: FieldEndpointPortMax, Property: "targetPortMax", Allowed: "0 (one port), or up to 65535",
			form: number(func(e *Endpoint) *uint16 { return &e.PortMax }, 65535),
		},
		{
			Name: FieldWeight, Property: "weight", Required: true, Allowed: "0 to 65535",
			form: number(func(e *Endpoint) *uint16 { return &e.Weight }, MaxWeight),
		},
		{
			Name: FieldBackup, Property: "backup", Allowed: backupAllowed,
			form: number(func(e *Endpoint) *uint8 { return &e.Backup }, MaxBackup),
		},
		{
			Name: FieldServerID, Property: "serverID", Allowed: serverIDAllowed,
			form: hexDigits(func(e *Endpoint) *string { return &e.ServerID }),
		},
	}
}

func (s Service) validateEndpoints() error {
	n := len(s.Endpoints)
	least := 1
	if s.Owner != "" {
		least = 0 // its controller adds endpoints later; until then clients are refused
	}
	if n < least || n > MaxEndpointsPerService {
		reason := "is too many"
		if n == 0 {
			reason = "is too few"
		}
		return NewFieldError(FieldEndpoints, strconv.Itoa(n), reason, strconv.Itoa(least)+" to "+strconv.Itoa(MaxEndpointsPerService))
	}
	for _, e := range s.Endpoints {
		if err := s.ValidateEndpoint(e); err != nil {
			return err
		}
	}
	if at, twice := findDuplicate(s.Endpoints); twice {
		return NewFieldError(FieldEndpoint, at.String(), "is given twice", "each address and port once")
	}
	return nil
}

// findDuplicate finds an address and port that two endpoints share.
func findDuplicate(list []Endpoint) (at netip.AddrPort, twice bool) {
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
	if err := CheckRoutable(FieldEndpointAddress, e.Addr); err != nil {
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
	case !s.Protocol.HasPorts() && (e.Port != 0 || e.PortMax != 0):
		return NewFieldError(FieldEndpointPort, strconv.Itoa(int(max(e.Port, e.PortMax))),
			"is set, but "+s.Protocol.String()+" has no ports", "0")
	case e.Port == 0 && s.Protocol.HasPorts():
		return NewFieldError(FieldEndpointPort, "0", "is zero", "1 to 65535")
	case s.Mode == ModeDSR && e.Port != s.Port:
		return NewFieldError(FieldEndpointPort, strconv.Itoa(int(e.Port)), "is not the service's, and mode dsr keeps ports",
			strconv.Itoa(int(s.Port))+", or mode auto or onearm for other ports, as node ports")
	case s.Mode == ModeDSR && e.PortMax != s.PortMax:
		return NewFieldError(FieldEndpointPortMax, strconv.Itoa(int(e.PortMax)), "is not the service's, and mode dsr keeps ports",
			strconv.Itoa(int(s.PortMax)))
	case e.PortMax == 0:
		return nil
	case s.PortMax == 0:
		return NewFieldError(FieldEndpointPortMax, strconv.Itoa(int(e.PortMax)), "makes a range, but the service has one port", "0")
	case last > 65535:
		return NewFieldError(FieldEndpointPort, strconv.Itoa(int(e.Port)), "is too high for all ports of the service",
			"1 to "+strconv.Itoa(65535-int(s.PortMax)+int(s.Port)))
	case int(e.PortMax) != last:
		return NewFieldError(FieldEndpointPortMax, strconv.Itoa(int(e.PortMax)), "does not make as many ports as the service has",
			strconv.Itoa(last)+", or 0 (all go to port "+strconv.Itoa(int(e.Port))+")")
	}
	return nil
}

// MaxEndRate is the highest number of connections that may be ended per second.
const MaxEndRate = 10_000

// Drain stops new connections to an endpoint, of any service. Open connections continue until the
// deadline.
type Drain struct {
	Addr     netip.Addr `json:"addr"`
	Port     uint16     `json:"port,omitempty"`    // 0: all ports of the address
	Deadline time.Time  `json:"deadline,omitzero"` // when the remaining connections are ended; zero: never
	Rate     int        `json:"rate"`              // connections to end per second
}

// Key returns the endpoint: IP or IP:PORT.
func (d Drain) Key() string {
	if d.Port == 0 {
		return d.Addr.String()
	}
	return netip.AddrPortFrom(d.Addr, d.Port).String()
}

// ParseDrain parses a key.
func ParseDrain(text string) (Drain, error) {
	if a, err := netip.ParseAddrPort(text); err == nil && a.Port() != 0 && a.Addr().Zone() == "" {
		return Drain{Addr: a.Addr().Unmap(), Port: a.Port()}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return Drain{}, NewFieldError(FieldEndpoint, text, "is not an endpoint", "IP or IP:PORT, IPv6 in brackets before a port")
	}
	return Drain{Addr: a.Unmap()}, nil
}

// Validate checks all fields.
func (d Drain) Validate() error {
	if !d.Addr.IsValid() {
		return NewFieldError(FieldEndpoint, "", "is missing", "IP or IP:PORT")
	}
	if d.Rate < 1 || d.Rate > MaxEndRate {
		return NewFieldError(FieldRate, strconv.Itoa(d.Rate), "is out of range", "1 to "+strconv.Itoa(MaxEndRate))
	}
	return nil
}

// Matches reports whether the drain applies to an endpoint with this address and port.
func (d *Drain) Matches(addr netip.Addr, port uint16) bool {
	return d.Addr == addr && (d.Port == 0 || d.Port == port)
}
