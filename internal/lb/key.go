package lb

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"loxilb/internal/lb/protocol"
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

// OtherNames returns texts by which users can select a service instead of its key: its name, each
// VIP, and each VIP with its first port.
func (s *Service) OtherNames() []string {
	list := []string{s.Name}
	for _, vip := range append([]netip.Addr{s.VIP}, s.Secondary...) {
		list = append(list, vip.String(), netip.AddrPortFrom(vip, s.Port).String())
	}
	return list
}

// AddressOf returns the address in a text IP or IP:PORT.
func AddressOf(name string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(name); err == nil {
		return at.Addr(), true
	}
	a, err := netip.ParseAddr(name)
	return a, err == nil
}

// Compare orders keys by VIP (IPv4 first), port, protocol, last port and mark.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.VIP.Compare(o.VIP), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol),
		cmp.Compare(k.PortMax, o.PortMax), cmp.Compare(k.Mark, o.Mark))
}

// AllPorts reports whether the service has all ports of its VIP. Any other service precedes it.
func (k Key) AllPorts() bool { return k.Port == 1 && k.PortMax == 65535 }

// Overlaps reports whether both are port ranges that share a port, and neither precedes the other.
func (k Key) Overlaps(o Key) bool {
	return k.PortMax != 0 && o.PortMax != 0 && k.AllPorts() == o.AllPorts() &&
		k.VIP == o.VIP && k.Protocol == o.Protocol && k.Mark == o.Mark && k.Port <= o.PortMax && o.Port <= k.PortMax
}

// ParseKey is the inverse of Key.String.
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

// ParseMark parses a mark in decimal, or in hexadecimal after 0x, as nft and ip write them.
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

// KeyFields returns the fields of a service's key. Text and records write them as one, by
// Key.String.
func KeyFields() []Field[Service] {
	return []Field[Service]{
		{
			Name: FieldVIP, Property: "serviceArguments.externalIP", Required: true,
			form: address(func(s *Service) *netip.Addr { return &s.VIP }),
		},
		{
			Name: FieldPort, Property: "serviceArguments.port", Required: true, Allowed: "1 to 65535",
			form: number(func(s *Service) *uint16 { return &s.Port }, 65535),
		},
		{
			Name: FieldPortMax, Also: FieldPorts, Property: "serviceArguments.portMax", Allowed: "0 (one port), or up to 65535",
			form: number(func(s *Service) *uint16 { return &s.PortMax }, 65535),
		},
		{
			Name: FieldMark, Property: "serviceArguments.block", Flag: "mark", Allowed: "0 (any) to 4294967295",
			Help: "match only packets with this mark (skb->mark); 0 matches packets that no other service matches",
			form: mark(func(s *Service) *uint32 { return &s.Mark }),
		},
		{
			Name: FieldProtocol, Property: "serviceArguments.protocol", Required: true,
			form: wordOrNumber(func(s *Service) *Protocol { return &s.Protocol }, protocols),
		},
	}
}

// Validate checks a key by itself.
func (k Key) Validate() error {
	if err := wordError(FieldProtocol, k.Protocol, protocols()); err != nil {
		return err
	}
	if err := checkAddrForm(FieldVIP, k.VIP); err != nil {
		return err
	}
	if !k.VIP.IsUnspecified() { // Service.Validate checks which mode that needs
		if err := CheckRoutable(FieldVIP, k.VIP); err != nil {
			return err
		}
	}
	return k.validatePorts()
}

func (k Key) validatePorts() error {
	switch {
	case !k.Protocol.HasPorts() && (k.Port != 0 || k.PortMax != 0):
		return NewFieldError(FieldPort, strconv.Itoa(int(max(k.Port, k.PortMax))), "is set, but "+k.Protocol.String()+" has no ports", "0")
	case k.Port == 0 && k.Protocol.HasPorts():
		return NewFieldError(FieldPort, "0", "is zero", "1 to 65535")
	case k.PortMax != 0 && k.PortMax <= k.Port:
		return NewFieldError(FieldPortMax, strconv.Itoa(int(k.PortMax)), "is not above the first, "+strconv.Itoa(int(k.Port)),
			"0 (one port), or up to 65535")
	}
	return nil
}

// Protocol is the IP protocol of a service.
type Protocol = protocol.Protocol

// The protocols of the existing loxilb, and ICMPv6, which packets of ICMP services have in IPv6.
const (
	ICMP   = protocol.ICMP
	TCP    = protocol.TCP
	UDP    = protocol.UDP
	SCTP   = protocol.SCTP
	ICMPv6 = protocol.ICMPv6
)

// Protocols returns the protocols that a service may have, supported or not.
func Protocols() []Protocol { return protocol.All() }

// ConnectionEvents are the events that a connection has seen.
type ConnectionEvents = protocol.Events

func protocols() (list []choice[Protocol]) {
	for _, p := range Protocols() {
		t := p.Traits()
		list = append(list, choice[Protocol]{value: p, word: t.Word, help: t.Help, alternative: t.Instead})
	}
	return list
}

// ParseProtocol parses the word or the IANA number.
func ParseProtocol(s string) (Protocol, error) {
	return parseWordOrNumber(FieldProtocol, s, protocols())
}

// ProtocolWords returns the words of the protocols that this build supports.
func ProtocolWords() []string { return available(protocols()) }
