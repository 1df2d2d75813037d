package netobj

import "loxilb/internal/lb"

// FDBKind is the name of the kind.
const FDBKind = "fdb"

// FDB is an entry of a bridge's forwarding table: frames to a MAC address leave by an interface.
type FDB struct {
	MAC MAC    `json:"macAddress"`
	Dev string `json:"dev"`
}

// ParseFDB parses an entry in the API's form.
func ParseFDB(mac, dev string) (f FDB, err error) {
	f.Dev = dev
	if f.MAC, err = ParseMAC("macAddress", mac); err != nil {
		return f, err
	}
	return f, f.Validate()
}

// Key is "00:11:22:aa:bb:cc eth0".
func (f FDB) Key() string { return f.MAC.String() + " " + f.Dev }

// Validate refuses addresses that no host has.
func (f FDB) Validate() error {
	if err := f.MAC.validate("macAddress"); err != nil {
		return err
	}
	return lb.ValidateDevice("dev", f.Dev)
}

// Needs returns the interface.
func (f FDB) Needs() []string { return []string{f.Dev} }

// SatisfiedBy reports whether both are equal.
func (f FDB) SatisfiedBy(have FDB) bool { return f == have }

// String identifies the object.
func (f FDB) String() string {
	return f.Key()
}
