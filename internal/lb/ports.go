package lb

import (
	"strconv"
	"strings"
)

// PortPair is one SERVICE:ENDPOINT pair of the command line's --tcp and --udp, in host byte order.
type PortPair struct{ Service, Endpoint uint16 }

// String writes the pair as 2020:5001.
func (p PortPair) String() string {
	return strconv.Itoa(int(p.Service)) + ":" + strconv.Itoa(int(p.Endpoint))
}

// ParsePortPairs reads a comma list of pairs, 80:8080,443:8443: one service each. Two pairs with one service
// port are refused, since they would be one service with two meanings.
func ParsePortPairs(s string) ([]PortPair, error) {
	var pairs []PortPair
	seen := make(map[uint16]bool)
	for one := range strings.SplitSeq(s, ",") {
		p, err := ParsePortPair(one)
		if err != nil {
			return nil, err
		}
		if seen[p.Service] {
			return nil, NewFieldError(FieldPorts, one, "repeats a service port", "each service port once")
		}
		seen[p.Service] = true
		pairs = append(pairs, p)
	}
	return pairs, nil
}

// ParsePortPair reads one pair, 2020:5001.
func ParsePortPair(s string) (PortPair, error) {
	const form = "PORT:ENDPOINTPORT, as in 80:8080"
	if strings.Contains(s, "-") {
		return PortPair{}, NewFieldError(FieldPorts, s, "is a range, which is not available yet", form)
	}
	service, endpoint, ok := strings.Cut(s, ":")
	if !ok {
		return PortPair{}, NewFieldError(FieldPorts, s, "is not a pair of ports", form)
	}
	var p PortPair
	var err error
	if p.Service, err = parseRealPort(FieldPort, service); err != nil {
		return PortPair{}, err
	}
	if p.Endpoint, err = parseRealPort(FieldEndpointPort, endpoint); err != nil {
		return PortPair{}, err
	}
	return p, nil
}

func parseRealPort(field, s string) (uint16, error) {
	n, err := parseNumber(field, s, "1 to 65535")
	if err == nil && n == 0 {
		err = NewFieldError(field, s, "is zero", "1 to 65535")
	}
	return n, err
}
