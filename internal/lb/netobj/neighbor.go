package netobj

import (
	"net/netip"

	"loxilb/internal/lb"
)

// NeighborKind is the name of the kind.
const NeighborKind = "neighbor"

// Neighbor is the MAC address of a host on a link, as set by a user.
type Neighbor struct {
	Addr netip.Addr `json:"ipAddress"`
	Dev  string     `json:"dev"`
	MAC  MAC        `json:"macAddress"`
}

// ParseNeighbor parses a neighbour in the API's form.
func ParseNeighbor(addr, dev, mac string) (n Neighbor, err error) {
	n.Dev = dev
	if n.Addr, err = parseHost("ipAddress", addr); err != nil {
		return n, err
	}
	if n.MAC, err = ParseMAC("macAddress", mac); err != nil {
		return n, err
	}
	return n, n.Validate()
}

// NeighborKey returns the key of a neighbour.
func NeighborKey(addr, dev string) (string, error) {
	a, err := parseHost("ip_address", addr)
	if err != nil {
		return "", err
	}
	return Neighbor{Addr: a, Dev: dev}.Key(), lb.ValidateDevice("if_name", dev)
}

// Key is "10.0.0.5 eth0".
func (n Neighbor) Key() string { return n.Addr.String() + " " + n.Dev }

// Validate refuses addresses that no host has.
func (n Neighbor) Validate() error {
	if err := validateHost("ipAddress", n.Addr); err != nil {
		return err
	}
	if err := lb.ValidateDevice("dev", n.Dev); err != nil {
		return err
	}
	return n.MAC.validate("macAddress")
}

// Needs returns the interface.
func (n Neighbor) Needs() []string { return []string{n.Dev} }

// SatisfiedBy reports whether both are equal.
func (n Neighbor) SatisfiedBy(have Neighbor) bool { return n == have }

// String identifies the object.
func (n Neighbor) String() string {
	return n.Key() + " at " + n.MAC.String()
}
