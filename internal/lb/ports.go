package lb

import (
	"strconv"
	"strings"
)

// PortRange is one port or several in a row, in host byte order.
type PortRange struct{ First, Last uint16 }

// Max returns the last port as services and endpoints write it: 0 for a single port.
func (r PortRange) Max() uint16 {
	if r.First == r.Last {
		return 0
	}
	return r.Last
}

// String writes 80 or 8080-8090.
func (r PortRange) String() string {
	s := strconv.Itoa(int(r.First))
	if r.Last != r.First {
		s += "-" + strconv.Itoa(int(r.Last))
	}
	return s
}

// PortPair is one SERVICE:ENDPOINT pair of --tcp and --udp. For a service with one port, a range of
// endpoint ports makes one endpoint per port at each address; for a service with a range, each port
// is mapped to its own endpoint port.
type PortPair struct{ Service, Endpoint PortRange }

// String writes the pair as 2020:5001 or 8080-8090:9080-9090.
func (p PortPair) String() string { return p.Service.String() + ":" + p.Endpoint.String() }

// Endpoints returns endpoints at the address with the ports of the pair.
func (p PortPair) Endpoints(e Endpoint) []Endpoint {
	if p.Service.Max() != 0 {
		e.Port, e.PortMax = p.Endpoint.First, p.Endpoint.Max()
		return []Endpoint{e}
	}
	list := make([]Endpoint, 0, p.Endpoint.Last-p.Endpoint.First+1)
	for port := int(p.Endpoint.First); port <= int(p.Endpoint.Last); port++ {
		e.Port = uint16(port)
		list = append(list, e)
	}
	return list
}

// ParsePortPairs reads a comma list of pairs, 80:8080,443:8443: one service each. Two pairs with
// one service port are refused, since they would be one service with two meanings.
func ParsePortPairs(s string) ([]PortPair, error) {
	var pairs []PortPair
	seen := make(map[PortRange]bool)
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

// ParsePortPair reads one pair, 2020:5001, 8080-8090:80, 8080-8090:9080-9090 or any:any. "any" is
// 1-65535.
func ParsePortPair(s string) (PortPair, error) {
	const form = "PORT:ENDPOINTPORT, as in 80:8080, or FIRST-LAST for either"
	service, endpoint, ok := strings.Cut(s, ":")
	if !ok {
		return PortPair{}, NewFieldError(FieldPorts, s, "is not a pair of ports", form)
	}
	var p PortPair
	var err error
	if p.Service, err = ParsePortRange(FieldPort, service); err != nil {
		return PortPair{}, err
	}
	if p.Endpoint, err = ParsePortRange(FieldEndpointPort, endpoint); err != nil {
		return PortPair{}, err
	}
	if p.Service.Max() != 0 && p.Endpoint.Max() != 0 && p.Service.Last-p.Service.First != p.Endpoint.Last-p.Endpoint.First {
		return PortPair{}, NewFieldError(FieldPorts, s, "has two ranges that are not of one length",
			"as many endpoint ports as service ports, or one endpoint port for all")
	}
	return p, nil
}

// ParsePortRange reads 80, 8080-8090, or any.
func ParsePortRange(field, s string) (r PortRange, err error) {
	if s == "any" {
		return PortRange{1, 65535}, nil
	}
	first, last, ranged := cutRange(s)
	if r.First, err = parseRealPort(field, first); err != nil {
		return PortRange{}, err
	}
	r.Last = r.First
	if !ranged {
		return r, nil
	}
	if r.Last, err = parseRealPort(field, last); err != nil {
		return PortRange{}, err
	}
	if r.Last <= r.First {
		return PortRange{}, NewFieldError(field, s, "is a range that does not end above its beginning", "FIRST-LAST, as in 8080-8090")
	}
	return r, nil
}

// cutRange cuts FIRST-LAST, and does not cut at a minus sign.
func cutRange(s string) (first, last string, ranged bool) {
	if i := strings.IndexByte(s, '-'); i > 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func parseRealPort(field, s string) (uint16, error) {
	n, err := parseNumber(field, s, "1 to 65535")
	if err == nil && n == 0 {
		err = NewFieldError(field, s, "is zero", "1 to 65535")
	}
	return n, err
}
