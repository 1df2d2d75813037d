package lb

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
)

// Refusal is the treatment of a packet that a service cannot use: a new connection while no
// endpoint is available, and a TCP segment without a connection.
type Refusal uint8

// The refusals.
const (
	RefuseReject Refusal = iota
	RefuseDrop
	RefusePass
)

func refusals() []choice[Refusal] {
	return []choice[Refusal]{
		{value: RefuseReject, word: "reject", help: "answer with RST or ICMP port unreachable"},
		{value: RefuseDrop, word: "drop", help: "drop silently"},
		{value: RefusePass, word: "pass", help: "hand the packet to the kernel, as if there were no service"},
	}
}

// String returns the word of flags, JSON and text.
func (r Refusal) String() string { return wordOf("refusal", r, refusals()) }

// Limits of the largest TCP segment of a service, as in Linux.
const (
	minMSS = 88
	maxMSS = 65495
)

const mssAllowed = "0 (as the two sides have it), or 88 to 65495"

func (s Service) validateRefusal() error {
	if err := wordError(FieldRefuse, s.Refuse, refusals()); err != nil {
		return err
	}
	mss := strconv.Itoa(int(s.MSS))
	switch {
	case s.MSS == 0:
		return nil
	case s.Protocol != TCP:
		return NewFieldError(FieldMSS, mss, "is set, but "+s.Protocol.String()+" has no segments", "0")
	case s.MSS < minMSS || s.MSS > maxMSS:
		return NewFieldError(FieldMSS, mss, "is out of range", mssAllowed)
	}
	return nil
}

// SynProtect is when a service challenges unknown clients before it opens a connection, against SYN
// floods from forged addresses.
type SynProtect uint8

// The choices.
const (
	SynProtectAuto SynProtect = iota
	SynProtectAlways
	SynProtectOff
)

func synProtects() []choice[SynProtect] {
	return []choice[SynProtect]{
		{value: SynProtectAuto, word: "auto", help: "while too many connections are half-open"},
		{value: SynProtectAlways, word: "always", help: "always"},
		{value: SynProtectOff, word: "off", help: "never"},
	}
}

// String returns the word of flags, JSON and text.
func (p SynProtect) String() string { return wordOf("SYN protection", p, synProtects()) }

func (s Service) validateSynProtect() error {
	if err := wordError(FieldSynProtect, s.SynProtect, synProtects()); err != nil {
		return err
	}
	if s.SynProtect != SynProtectAuto && s.Protocol != TCP {
		return NewFieldError(FieldSynProtect, s.SynProtect.String(), "is set, but "+s.Protocol.String()+" has no SYNs", SynProtectAuto.String())
	}
	return nil
}

// ConnectionLimits limit the connections of a service and of each of its clients; 0 means
// unlimited. Rates are new connections per second.
type ConnectionLimits struct {
	MaxRate, MaxConnections       uint32
	ClientRate, ClientConnections uint32
	ClientPrefix                  uint8 // leading bits of an address that make a client; 0: 32 of IPv4, 64 of IPv6
}

// Limited reports whether any limit is set.
func (l ConnectionLimits) Limited() bool {
	return l.MaxRate|l.MaxConnections|l.ClientRate|l.ClientConnections != 0
}

// maxRate is the largest rate whose tokens of one second fit into a token bucket on every kernel.
const maxRate = 1_000_000

// maxConnectionLimit is more than any connection table holds.
const maxConnectionLimit = 1_000_000_000

func limitFields() []Field[Service] {
	const rates, counts = "0 (any number) to 1000000", "0 (any number) to 1000000000"
	return []Field[Service]{
		{
			Name: FieldRate, Text: "max-rate", Record: "maxRate", Position: 17, Since: 3, Property: "serviceArguments.maxRate", Flag: "max-rate",
			Help: "limit the service's new connections per second; 0 is no limit", Allowed: rates,
			form: number(func(s *Service) *uint32 { return &s.MaxRate }, maxRate),
		},
		{
			Name: FieldConnections, Text: "max-connections", Record: "maxConnections", Position: 18, Since: 3,
			Property: "serviceArguments.maxConnections", Flag: "max-connections",
			Help: "limit the service's open connections; 0 is no limit", Allowed: counts,
			form: number(func(s *Service) *uint32 { return &s.MaxConnections }, maxConnectionLimit),
		},
		{
			Name: FieldClientRate, Text: "client-rate", Record: "clientRate", Position: 19, Since: 3,
			Property: "serviceArguments.clientRate", Flag: "client-rate",
			Help: "limit each client's new connections per second; 0 is no limit", Allowed: rates,
			form: number(func(s *Service) *uint32 { return &s.ClientRate }, maxRate),
		},
		{
			Name: FieldClientConnections, Text: "client-connections", Record: "clientConnections", Position: 20, Since: 3,
			Property: "serviceArguments.clientConnections", Flag: "client-connections",
			Help: "limit each client's open connections; 0 is no limit", Allowed: counts,
			form: number(func(s *Service) *uint32 { return &s.ClientConnections }, maxConnectionLimit),
		},
		{
			Name: FieldClientPrefix, Text: "client-prefix", Record: "clientPrefix", Position: 21, Since: 3,
			Property: "serviceArguments.clientPrefix", Flag: "client-prefix",
			Help:    "leading address bits that identify a client for --client-rate and --client-connections; 0 is 32 for IPv4, 64 for IPv6",
			Allowed: "0 (32 of IPv4, 64 of IPv6) to 32 for IPv4, 128 for IPv6",
			form:    number(func(s *Service) *uint8 { return &s.ClientPrefix }, 128),
		},
	}
}

func (s Service) validateLimits() error {
	l, bits := s.ConnectionLimits, s.VIP.BitLen()
	atMost := func(field string, value uint32, most int) error {
		if int64(value) <= int64(most) {
			return nil
		}
		return NewFieldError(field, strconv.Itoa(int(value)), "is out of range", "0 (any number) to "+strconv.Itoa(most))
	}
	for _, err := range []error{
		atMost(FieldRate, l.MaxRate, maxRate), atMost(FieldClientRate, l.ClientRate, maxRate),
		atMost(FieldConnections, l.MaxConnections, maxConnectionLimit), atMost(FieldClientConnections, l.ClientConnections, maxConnectionLimit),
	} {
		if err != nil {
			return err
		}
	}
	prefix := strconv.Itoa(int(l.ClientPrefix))
	switch {
	case int(l.ClientPrefix) > bits:
		return NewFieldError(FieldClientPrefix, prefix, "is longer than an address of the VIP's family", "0 (the default) to "+strconv.Itoa(bits))
	case l.ClientPrefix != 0 && l.ClientRate == 0 && l.ClientConnections == 0:
		return NewFieldError(FieldClientPrefix, prefix, "is set, but clients are not limited", "0, or a client rate or client connections")
	}
	return nil
}

// parseSources parses prefixes, such as 10.0.0.0/8 or 2001:db8::/32, and addresses, which are
// prefixes of full length, and normalizes them by NormalSources. field names a single one in
// errors.
func parseSources(field string, list []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		p, err := parseSource(field, s)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return NormalSources(out), nil
}

func parseSource(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, addrErr := netip.ParseAddr(s)
		if addrErr != nil {
			return p, NewFieldError(field, s, "is not a prefix", "IP/LENGTH or IP")
		}
		if err := checkAddrForm(field, a); err != nil { // refuse a zone: PrefixFrom would drop it silently
			return p, err
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return p, checkAddrForm(field, p.Addr())
}

// ParsePrefix parses a prefix, or an address, which is a prefix of all its bits. Bits after the
// prefix are dropped.
func ParsePrefix(field, s string) (netip.Prefix, error) {
	p, err := parseSource(field, s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return p.Masked(), nil
}

// NormalSources clears the bits after each prefix, sorts the list in place, and removes duplicates.
func NormalSources(list []netip.Prefix) []netip.Prefix {
	for i, p := range list {
		list[i] = p.Masked()
	}
	slices.SortFunc(list, ComparePrefix)
	return slices.Compact(list)
}

// ComparePrefix orders by address, then by length.
func ComparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func (s Service) validateSources() error {
	if err := s.validateSourceList(FieldSources, FieldSource, s.Sources); err != nil {
		return err
	}
	return s.validateSourceList(FieldDenied, FieldDeniedSource, s.Denied)
}

func (s Service) validateSourceList(field, one string, list []netip.Prefix) error {
	if n := len(list); n > MaxSourcesPerService {
		return NewFieldError(field, strconv.Itoa(n), "is too many", "0 to "+strconv.Itoa(MaxSourcesPerService))
	}
	for i, p := range list {
		if !p.IsValid() {
			return NewFieldError(one, p.String(), "is not a prefix", "IP/LENGTH or IP")
		}
		if err := checkAddrForm(one, p.Addr()); err != nil {
			return err
		}
		if p.Addr().Is4() != s.VIP.Is4() {
			return NewFieldError(one, p.String(), "is "+IPVersion(p.Addr())+", and the VIP is "+IPVersion(s.VIP),
				IPVersion(s.VIP)+" prefixes")
		}
		if p != p.Masked() || i > 0 && ComparePrefix(list[i-1], p) >= 0 {
			return NewFieldError(one, p.String(), "is not sorted, or has bits after its length", "sorted prefixes, each once")
		}
	}
	return nil
}
