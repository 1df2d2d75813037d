package netobj

import (
	"net/netip"

	"loxilb/internal/lb"
)

// AddressKind is the kind's name in messages and journals. The existing loxilb uses it for both IP
// versions.
const AddressKind = "ipv4address"

// Address is an address of an interface.
type Address struct {
	Dev    string       `json:"dev"`
	Prefix netip.Prefix `json:"ipAddress"`
}

// ParseAddress parses an address in the API's form.
func ParseAddress(dev, prefix string) (a Address, err error) {
	a.Dev = dev
	if a.Prefix, err = parsePrefix("ipAddress", prefix); err != nil {
		return a, err
	}
	return a, a.Validate()
}

// Key is "10.0.0.1/24 eth0".
func (a Address) Key() string { return a.Prefix.String() + " " + a.Dev }

// Validate refuses addresses that no interface can have.
func (a Address) Validate() error {
	if !a.Prefix.IsValid() {
		return lb.NewFieldError("ipAddress", "", "is missing", "as in 10.0.0.1/24 or 2001:db8::1/64")
	}
	if err := validateHost("ipAddress", a.Prefix.Addr()); err != nil {
		return err
	}
	return lb.ValidateDevice("dev", a.Dev)
}

// Needs returns the address's interface.
func (a Address) Needs() []string { return []string{a.Dev} }

// SatisfiedBy reports whether both are equal.
func (a Address) SatisfiedBy(have Address) bool { return a == have }

// String identifies the object.
func (a Address) String() string {
	return a.Key()
}
