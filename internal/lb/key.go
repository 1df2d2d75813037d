package lb

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
)

// String writes the key as 10.0.0.1:80/tcp, [2001:db8::1]:8080-8090/udp or 10.0.0.1:80/tcp/mark=7.
func (k Key) String() string {
	s := netip.AddrPortFrom(k.VIP, k.Port).String()
	if k.PortMax != 0 {
		s += "-" + strconv.Itoa(int(k.PortMax))
	}
	s += "/" + k.Protocol.String()
	if k.Mark != 0 {
		s += "/mark=" + strconv.FormatUint(uint64(k.Mark), 10)
	}
	return s
}

// Compare orders keys by VIP (IPv4 first), port, protocol, last port and mark.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.VIP.Compare(o.VIP), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol),
		cmp.Compare(k.PortMax, o.PortMax), cmp.Compare(k.Mark, o.Mark))
}

// AllPorts reports whether the service has every port of its VIP: any other service precedes it.
func (k Key) AllPorts() bool { return k.Port == 1 && k.PortMax == 65535 }

// Overlaps reports whether both are ranges that share a port, and neither precedes the other.
func (k Key) Overlaps(o Key) bool {
	return k.PortMax != 0 && o.PortMax != 0 && k.AllPorts() == o.AllPorts() &&
		k.VIP == o.VIP && k.Protocol == o.Protocol && k.Mark == o.Mark && k.Port <= o.PortMax && o.Port <= k.PortMax
}

// ParseKey parses what Key.String writes.
func ParseKey(s string) (Key, error) {
	const form = "IP:PORT/PROTOCOL or IP:FIRST-LAST/PROTOCOL with IPv6 in brackets, as in 10.0.0.1:80/tcp"
	at, proto, ok := strings.Cut(s, "/")
	if !ok {
		return Key{}, NewFieldError(FieldService, s, "has no protocol", form)
	}
	host, port, ok := splitHost(at)
	if !ok || port == "" {
		return Key{}, NewFieldError(FieldService, s, "is not an address and a port", form)
	}
	var k Key
	var err error
	if k.VIP, err = ParseAddr(FieldVIP, host); err != nil {
		return Key{}, err
	}
	first, last, ranged := cutRange(port)
	if k.Port, err = ParsePort(FieldPort, first); err != nil {
		return Key{}, err
	}
	if ranged {
		if k.PortMax, err = parseRealPort(FieldPortMax, last); err != nil {
			return Key{}, err
		}
	}
	proto, mark, marked := strings.Cut(proto, "/mark=")
	if marked {
		if k.Mark, err = ParseMark(mark); err != nil {
			return Key{}, err
		}
	}
	if k.Protocol, err = ParseProtocol(proto); err != nil {
		return Key{}, err
	}
	return k, nil
}

// ParseMark reads a mark in decimal, or in hexadecimal after 0x, as nft and ip write them.
func ParseMark(s string) (uint32, error) {
	const allowed = "0 to 4294967295, or 0x0 to 0xffffffff"
	digits, base := s, 10
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil {
		return 0, NewFieldError(FieldMark, s, "is not a mark", allowed)
	}
	return uint32(n), nil
}

// splitHost cuts "host:rest" at the first colon, or "[v6]:rest" after the bracket. ok is false if
// the bracket is not closed, holds no IPv6 address, or is not followed by a colon.
func splitHost(s string) (host, rest string, ok bool) {
	if !strings.HasPrefix(s, "[") {
		host, rest, _ = strings.Cut(s, ":")
		return host, rest, true
	}
	host, rest, ok = strings.Cut(s[1:], "]")
	if !ok || !strings.Contains(host, ":") {
		return "", "", false
	}
	if rest == "" {
		return host, "", true
	}
	rest, ok = strings.CutPrefix(rest, ":")
	return host, rest, ok
}
