package lb

import "strconv"

// ConnectionLimits limit the connections of a service and of each of its clients; 0 means
// unlimited. Rates are new connections per second.
type ConnectionLimits struct {
	MaxRate, MaxConnections       uint32
	ClientRate, ClientConnections uint32
	ClientPrefix                  uint8 // leading bits of an address that make a client; 0: 32 of IPv4, 64 of IPv6
}

// Limited reports whether anything is.
func (l ConnectionLimits) Limited() bool {
	return l.MaxRate|l.MaxConnections|l.ClientRate|l.ClientConnections != 0
}

// maxRate is the largest rate of which a token bucket holds one second's worth on every kernel.
const maxRate = 1_000_000

// maxOpen is more than any table holds.
const maxOpen = 1_000_000_000

func limitFields() []Field[Service] {
	const rates, counts = "0 (any number) to 1000000", "0 (any number) to 1000000000"
	return []Field[Service]{
		{
			Name: FieldRate, Text: "max-rate", Record: "maxRate", Place: 17, Since: 3, Property: "serviceArguments.maxRate", Flag: "max-rate",
			Help: "limit the service's new connections per second; 0 is no limit", Allowed: rates,
			form: number(func(s *Service) *uint32 { return &s.MaxRate }, maxRate),
		},
		{
			Name: FieldConnections, Text: "max-connections", Record: "maxConnections", Place: 18, Since: 3,
			Property: "serviceArguments.maxConnections", Flag: "max-connections",
			Help: "limit the service's open connections; 0 is no limit", Allowed: counts,
			form: number(func(s *Service) *uint32 { return &s.MaxConnections }, maxOpen),
		},
		{
			Name: FieldClientRate, Text: "client-rate", Record: "clientRate", Place: 19, Since: 3,
			Property: "serviceArguments.clientRate", Flag: "client-rate",
			Help: "limit each client's new connections per second; 0 is no limit", Allowed: rates,
			form: number(func(s *Service) *uint32 { return &s.ClientRate }, maxRate),
		},
		{
			Name: FieldClientConnections, Text: "client-connections", Record: "clientConnections", Place: 20, Since: 3,
			Property: "serviceArguments.clientConnections", Flag: "client-connections",
			Help: "limit each client's open connections; 0 is no limit", Allowed: counts,
			form: number(func(s *Service) *uint32 { return &s.ClientConnections }, maxOpen),
		},
		{
			Name: FieldClientPrefix, Text: "client-prefix", Record: "clientPrefix", Place: 21, Since: 3,
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
		atMost(FieldConnections, l.MaxConnections, maxOpen), atMost(FieldClientConnections, l.ClientConnections, maxOpen),
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
		return NewFieldError(FieldClientPrefix, prefix, "is given, and clients are not limited", "0, or a client rate or client connections")
	}
	return nil
}
