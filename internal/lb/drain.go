package lb

import (
	"net/netip"
	"strconv"
	"time"
)

// Drain says that an endpoint is to take no new connections of any service. Those that it has go on
// until the deadline.
type Drain struct {
	Addr     netip.Addr `json:"addr"`
	Port     uint16     `json:"port,omitempty"`    // 0: all ports of the address
	Deadline time.Time  `json:"deadline,omitzero"` // when those that are left are ended; zero: never
	Rate     int        `json:"rate"`              // of them a second
}

// Key names it: IP or IP:PORT.
func (d Drain) Key() string {
	if d.Port == 0 {
		return d.Addr.String()
	}
	return netip.AddrPortFrom(d.Addr, d.Port).String()
}

// ParseDrain reads a key.
func ParseDrain(text string) (Drain, error) {
	if a, err := netip.ParseAddrPort(text); err == nil && a.Port() != 0 && a.Addr().Zone() == "" {
		return Drain{Addr: a.Addr().Unmap(), Port: a.Port()}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return Drain{}, &FieldError{Field: FieldEndpoint, Value: text, Reason: "is not an endpoint", Allowed: "IP or IP:PORT, IPv6 in brackets before a port"}
	}
	return Drain{Addr: a.Unmap()}, nil
}

// Validate refuses what makes no sense.
func (d Drain) Validate() error {
	if !d.Addr.IsValid() {
		return &FieldError{Field: FieldEndpoint, Reason: "is missing", Allowed: "IP or IP:PORT"}
	}
	if d.Rate < 1 || d.Rate > EndRateMax {
		return &FieldError{Field: FieldRate, Value: strconv.Itoa(d.Rate), Reason: "is out of range", Allowed: "1 to " + strconv.Itoa(EndRateMax)}
	}
	return nil
}

// Has tells whether it is about this endpoint.
func (d *Drain) Has(addr netip.Addr, port uint16) bool {
	return d.Addr == addr && (d.Port == 0 || d.Port == port)
}
