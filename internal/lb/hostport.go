package lb

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// hostName is a DNS name.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9.])?$`)

// IsHostName reports whether s may be a DNS name.
func IsHostName(s string) bool { return hostName.MatchString(s) }

// ParseHostPort parses the address of another machine: IP, HOST:PORT, [IPv6]:PORT or a DNS name. It
// returns HOST:PORT, with defaultPort if s has no port.
func ParseHostPort(s, defaultPort string) (string, error) {
	host, port := s, defaultPort
	bare := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		bare = s[1 : len(s)-1]
	}
	if a, err := netip.ParseAddr(bare); err == nil {
		host = a.String()
	} else if strings.Contains(s, ":") {
		if host, port, err = net.SplitHostPort(s); err != nil {
			return "", errHostPort(s)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", NewFieldError(FieldAddress, s, "has the port "+strconv.Quote(port), "1 to 65535")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.IsUnspecified() || a.IsMulticast() {
			return "", NewFieldError(FieldAddress, s, "is not the address of a node", "")
		}
		if a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" {
			return "", NewFieldError(FieldAddress, s, "is a link-local address without interface", a.String()+"%INTERFACE")
		}
		return net.JoinHostPort(a.String(), port), nil
	}
	if !IsHostName(host) || endsInNumber(host) {
		return "", errHostPort(s)
	}
	return net.JoinHostPort(host, port), nil
}

// endsInNumber reports whether the last label of a name is a number. Such a name is a mistyped IPv4
// address, since no top-level domain is a number (RFC 3696 section 2).
func endsInNumber(name string) bool {
	name = strings.TrimSuffix(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.Trim(last, "0123456789") == ""
}

func errHostPort(s string) error {
	return NewFieldError(FieldAddress, s, "is not IP, HOST:PORT, [IPv6]:PORT or a DNS name", "")
}
