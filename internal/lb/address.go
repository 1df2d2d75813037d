package lb

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// ParseAddr parses an IPv4 or IPv6 address. It refuses a zone, which is specific to one machine,
// and an IPv4-mapped IPv6 address: one address would have two spellings, and a service two keys.
func ParseAddr(field, s string) (netip.Addr, error) {
	if s == "" {
		return netip.Addr{}, checkAddrForm(field, netip.Addr{})
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, NewFieldError(field, s, "is not an IP address", "an IPv4 or IPv6 address")
	}
	return a, checkAddrForm(field, a)
}

func checkAddrForm(field string, a netip.Addr) error {
	switch {
	case !a.IsValid():
		return NewFieldError(field, "", missing, "an IPv4 or IPv6 address")
	case a.Zone() != "":
		return NewFieldError(field, a.String(), "has a zone", a.WithZone("").String())
	case a.Is4In6():
		return NewFieldError(field, a.String(), "is an IPv4 address written as IPv6", a.Unmap().String())
	}
	return nil
}

// CheckRoutable refuses the addresses that no packet can be balanced to or from.
func CheckRoutable(field string, a netip.Addr) error {
	if err := checkAddrForm(field, a); err != nil {
		return err
	}
	reason := ""
	switch {
	case a.IsUnspecified():
		reason = "is the unspecified address"
	case a.IsLoopback():
		reason = "is a loopback address"
	case a.IsMulticast():
		reason = "is a multicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		reason = "is the broadcast address"
	case a.Is6() && a.IsLinkLocalUnicast():
		reason = "is link-local: it is valid on one link only"
	default:
		return nil
	}
	return NewFieldError(field, a.String(), reason, "a unicast address that can be routed")
}

// checkProbeable refuses the same addresses as CheckRoutable, and the metadata services of clouds:
// they give secrets to any client on the machine, and a probe with an expected answer could be used
// to guess them.
func checkProbeable(field string, a netip.Addr) error {
	if err := CheckRoutable(field, a); err != nil {
		return err
	}
	if isMetadata(a) {
		return NewFieldError(field, a.String(), "must not be probed: it is the metadata service of a cloud, which gives out secrets", "any other address")
	}
	return nil
}

// isMetadata reports whether clouds have a metadata service at an address: link-local addresses of
// IPv4, also embedded in IPv6, and the addresses that clouds document.
func isMetadata(a netip.Addr) bool {
	a = embeddedIPv4(a.Unmap())
	if a.IsLinkLocalUnicast() {
		return true
	}
	switch a.String() {
	case "fd00:ec2::254", "fd00:ec2::23", // AWS: instances; pods
		"fd20:ce::254",       // Google Cloud
		"168.63.129.16",      // Azure
		"100.100.100.200",    // Alibaba Cloud
		"192.0.0.192",        // Oracle Cloud
		"fd00:c1::a9fe:a9fe", // the same service by IPv6
		"fd00:42::42":        // Scaleway
		return true
	}
	return false
}

// embeddedIPv4 returns the IPv4 address that an IPv6 address contains for NAT64 (RFC 6052, RFC
// 8215), 6to4, or as an IPv4-compatible or IPv4-translated address. Other addresses are returned
// unchanged.
func embeddedIPv4(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	b := a.As16()
	if b[0] == 0x20 && b[1] == 0x02 {
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	for _, p := range [...]string{"64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"} {
		if netip.MustParsePrefix(p).Contains(a) {
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return a
}

// ParsePort parses a port. It accepts zero, the port of protocols without ports; Validate refuses
// it for others.
func ParsePort(field, s string) (uint16, error) {
	return parseNumber(field, s, "0 to 65535")
}

// ParseWeight parses an endpoint's weight.
func ParseWeight(s string) (uint16, error) { return parseNumber(FieldWeight, s, "0 to 65535") }

// parseNumber parses plain decimal digits without a sign or a leading zero.
func parseNumber(field, s, allowed string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	switch {
	case errors.Is(err, strconv.ErrRange) || strings.HasPrefix(s, "-"):
		return 0, NewFieldError(field, s, "is out of range", allowed)
	case err != nil || s != strconv.FormatUint(n, 10):
		return 0, NewFieldError(field, s, "is not a plain number", allowed)
	}
	return uint16(n), nil
}

// IPVersion returns "IPv4" or "IPv6".
func IPVersion(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// PortRange is a range of ports from First to Last.
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

// ParsePortPairs parses pairs separated by commas, such as 80:8080,443:8443. Each pair is a
// service, so two pairs must not have the same service port.
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

// ParsePortPair parses one pair, 2020:5001, 8080-8090:80, 8080-8090:9080-9090 or any:any. "any" is
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
		return PortPair{}, NewFieldError(FieldPorts, s, "has two ranges of different lengths",
			"as many endpoint ports as service ports, or one endpoint port for all")
	}
	return p, nil
}

// ParsePortRange parses 80, 8080-8090, or any.
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
		return PortRange{}, NewFieldError(field, s, "is a range whose last port is not above its first", "FIRST-LAST, as in 8080-8090")
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
