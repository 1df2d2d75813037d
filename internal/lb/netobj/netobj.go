// Package netobj defines the network objects that users can create, independent of the kernel:
// addresses, routes, neighbours, entries of forwarding tables, VLANs, VXLANs and BFD sessions.
package netobj

import (
	"encoding/hex"
	"errors"
	"net/netip"

	"loxilb/internal/lb"
)

// Object is a network object of any kind.
type Object[T any] interface {
	comparable
	Key() string     // as users write it; two objects of a kind never share one
	Validate() error // *lb.FieldError
	Needs() []string // the interfaces that must exist first
	// SatisfiedBy reports whether the kernel's object with the same key is as wanted, whichever
	// program has made it.
	SatisfiedBy(have T) bool
	String() string // unlike Key, differs between any two objects
}

// MAC is the address of a host on a link.
type MAC [6]byte

var errMAC = errors.New("not a MAC address")

// ParseMAC parses 00:11:22:aa:bb:cc of a single host. field names it in errors.
func ParseMAC(field, text string) (m MAC, err error) {
	if err := m.UnmarshalText([]byte(text)); err != nil {
		return m, lb.NewFieldError(field, text, "is not a MAC address", "six bytes, as in 00:11:22:aa:bb:cc")
	}
	return m, m.validate(field)
}

func (m MAC) validate(field string) error {
	switch {
	case m == MAC{}:
		return lb.NewFieldError(field, m.String(), "is zero", "the MAC address of one host")
	case m[0]&1 != 0:
		return lb.NewFieldError(field, m.String(), "is a multicast address", "the MAC address of one host")
	}
	return nil
}

// String is 00:11:22:aa:bb:cc.
func (m MAC) String() string {
	b := make([]byte, 0, 17)
	for i, octet := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = hex.AppendEncode(b, []byte{octet})
	}
	return string(b)
}

// MarshalText writes the address as String does.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads an address with colons or dashes.
func (m *MAC) UnmarshalText(text []byte) error {
	if len(text) != 17 {
		return errMAC
	}
	for i := range m {
		if i > 0 && text[3*i-1] != text[2] || text[2] != ':' && text[2] != '-' {
			return errMAC
		}
		if _, err := hex.Decode(m[i:i+1], text[3*i:3*i+2]); err != nil {
			return errMAC
		}
	}
	return nil
}

// parsePrefix parses an address with the prefix length of its network.
func parsePrefix(field, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return p, lb.NewFieldError(field, text, "is not an address with the length of its network", "as in 10.0.0.1/24 or 2001:db8::1/64")
	}
	return p, nil
}

// parseHost parses the address of one host.
func parseHost(field, text string) (netip.Addr, error) {
	a, err := lb.ParseAddr(field, text)
	if err != nil {
		return a, err
	}
	return a, validateHost(field, a)
}

func validateHost(field string, a netip.Addr) error {
	switch {
	case !a.IsValid():
		return lb.NewFieldError(field, "", "is missing", "the address of one host")
	case a.IsUnspecified(), a.IsMulticast(), a.Zone() != "":
		return lb.NewFieldError(field, a.String(), "is not the address of one host", "as in 10.0.0.1 or 2001:db8::1")
	}
	return nil
}
