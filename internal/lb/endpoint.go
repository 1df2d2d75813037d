package lb

import (
	"net/netip"
	"strconv"
	"strings"
)

// AddrPort returns where the endpoint listens.
func (e Endpoint) AddrPort() netip.AddrPort { return netip.AddrPortFrom(e.Addr, e.Port) }

// String writes IP:PORT or IP:PORT-PORTMAX, followed by :WEIGHT if the weight is not 1, and @LEVEL
// for a backup; IPv6 in brackets.
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
	return s
}

// ParseEndpoint parses what Endpoint.String writes: IP:PORT or IP:PORT:WEIGHT, optionally with
// @LEVEL, IPv6 in brackets; the default weight is 1.
func ParseEndpoint(s string) (Endpoint, error) {
	e, _, err := parseEndpoint(s)
	return e, err
}

// parseEndpoint also reports whether the weight was written.
func parseEndpoint(s string) (e Endpoint, weighted bool, err error) {
	text, backup, err := cutBackup(s)
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
	e.Backup = backup
	return e, weighted, err
}

// ParseEndpointFlag reads an element of the command line's --endpoints: IP:WEIGHT, IP:PORT:WEIGHT,
// [v6]:WEIGHT, [v6]:PORT:WEIGHT, or a bare v6:WEIGHT, with @LEVEL behind a backup. Port is 0 when
// not given: that of --tcp or --udp is meant.
//
// A bare IPv6 address is cut at its last colon, whatever it looks like: 2001:db8::1:1 is
// 2001:db8::1 with weight 1, never 2001:db8::1:1 without one. So the weight can't be left out, and
// a port needs the brackets.
func ParseEndpointFlag(s string) (Endpoint, error) {
	text, backup, err := cutBackup(s)
	if err != nil {
		return Endpoint{}, err
	}
	e, err := parseEndpointFlag(text)
	e.Backup = backup
	return e, err
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
