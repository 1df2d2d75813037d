package lb

import (
	"cmp"
	"net/netip"
	"strings"
)

// String writes the key as 10.0.0.1:80/tcp or [2001:db8::1]:80/udp.
func (k Key) String() string {
	return netip.AddrPortFrom(k.VIP, k.Port).String() + "/" + k.Protocol.String()
}

// Compare orders keys by VIP (IPv4 first), port and protocol.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.VIP.Compare(o.VIP), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol))
}

// ParseKey reads what Key.String writes.
func ParseKey(s string) (Key, error) {
	const form = "IP:PORT/PROTOCOL with IPv6 in brackets, as in 10.0.0.1:80/tcp"
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
	if k.Port, err = ParsePort(FieldPort, port); err != nil {
		return Key{}, err
	}
	if k.Protocol, err = ParseProtocol(proto); err != nil {
		return Key{}, err
	}
	return k, nil
}

// splitHost cuts "host:rest" at the first colon, or "[v6]:rest" after the bracket. ok is false when a bracket is
// open, or holds no IPv6 address, or something else than a colon follows it.
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
