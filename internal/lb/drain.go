package lb

import (
	"net/netip"
	"strconv"
	"time"
)

// Drain stops new connections to an endpoint, of any service. Open connections continue until the
// deadline.
type Drain struct {
	Addr     netip.Addr `json:"addr"`
	Port     uint16     `json:"port,omitempty"`    // 0: all ports of the address
	Deadline time.Time  `json:"deadline,omitzero"` // when the remaining connections are ended; zero: never
	Rate     int        `json:"rate"`              // how many of them are ended per second
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

// Validate checks all fields.
func (d Drain) Validate() error {
	if !d.Addr.IsValid() {
		return &FieldError{Field: FieldEndpoint, Reason: "is missing", Allowed: "IP or IP:PORT"}
	}
	if d.Rate < 1 || d.Rate > EndRateMax {
		return &FieldError{Field: FieldRate, Value: strconv.Itoa(d.Rate), Reason: "is out of range", Allowed: "1 to " + strconv.Itoa(EndRateMax)}
	}
	return nil
}

// Has reports whether the drain is for this endpoint.
func (d *Drain) Has(addr netip.Addr, port uint16) bool {
	return d.Addr == addr && (d.Port == 0 || d.Port == port)
}
