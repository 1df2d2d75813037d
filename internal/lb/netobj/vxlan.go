package netobj

import (
	"fmt"
	"net/netip"
	"strconv"

	"loxilb/internal/lb"
)

// The names of the kinds.
const (
	VXLANKind     = "vxlan"
	VXLANPeerKind = "vxlanpeer"
)

// maxVXLAN is the highest number of a VXLAN.
const maxVXLAN = 1<<24 - 1

// VXLAN is a tunnel: an interface vxlanN, whose frames travel in UDP through another interface.
type VXLAN struct {
	ID       int    `json:"vxlanID"`
	Dev      string `json:"epIntf"`
	LinkType string `json:"-"` // in the kernel only: type of a link with this name that is not a VXLAN
}

// ParseVXLAN parses a tunnel in the API's form.
func ParseVXLAN(id, dev string) (v VXLAN, err error) {
	v.Dev = dev
	if v.ID, err = ParseVXLANID("vxlanID", id); err != nil {
		return v, err
	}
	return v, v.Validate()
}

// ParseVXLANID parses the number of a VXLAN. field names it in errors.
func ParseVXLANID(field, text string) (int, error) {
	id, err := strconv.Atoi(text)
	if err != nil {
		return 0, lb.NewFieldError(field, text, "is not the number of a VXLAN", fmt.Sprintf("1 to %d", maxVXLAN))
	}
	return id, checkVXLAN(field, id)
}

func checkVXLAN(field string, id int) error {
	if id < 1 || id > maxVXLAN {
		return lb.NewFieldError(field, strconv.Itoa(id), "is not the number of a VXLAN", fmt.Sprintf("1 to %d", maxVXLAN))
	}
	return nil
}

// Key returns the number.
func (v VXLAN) Key() string { return strconv.Itoa(v.ID) }

// Device returns the interface: vxlan78.
func (v VXLAN) Device() string { return "vxlan" + v.Key() }

// Validate refuses numbers that no VXLAN has.
func (v VXLAN) Validate() error {
	if err := checkVXLAN("vxlanID", v.ID); err != nil {
		return err
	}
	return lb.ValidateDevice("epIntf", v.Dev)
}

// Needs returns the interface below the tunnel.
func (v VXLAN) Needs() []string { return []string{v.Dev} }

// SatisfiedBy reports whether both are equal.
func (v VXLAN) SatisfiedBy(have VXLAN) bool { return v == have }

// String identifies the object.
func (v VXLAN) String() string {
	if v.LinkType != "" {
		return fmt.Sprintf("%s (%s)", v.Device(), v.LinkType)
	}
	return v.Key() + " over " + v.Dev
}

// VXLANPeer is an address to which a tunnel sends broadcasts, and packets to hosts of unknown
// location.
type VXLANPeer struct {
	ID   int        `json:"vxlanID"`
	Peer netip.Addr `json:"peerIP"`
}

// ParseVXLANPeer parses a peer in the API's form.
func ParseVXLANPeer(id, peer string) (p VXLANPeer, err error) {
	if p.ID, err = ParseVXLANID("vxlanID", id); err != nil {
		return p, err
	}
	if p.Peer, err = parseHost("peerIP", peer); err != nil {
		return p, err
	}
	return p, p.Validate()
}

// Key is "78 10.0.0.2".
func (p VXLANPeer) Key() string { return fmt.Sprintf("%d %s", p.ID, p.Peer) }

// Device returns the tunnel's interface.
func (p VXLANPeer) Device() string { return VXLAN{ID: p.ID}.Device() }

// Validate refuses addresses that no host has.
func (p VXLANPeer) Validate() error {
	if err := checkVXLAN("vxlanID", p.ID); err != nil {
		return err
	}
	return validateHost("peerIP", p.Peer)
}

// Needs returns the tunnel.
func (p VXLANPeer) Needs() []string { return []string{p.Device()} }

// SatisfiedBy reports whether both are equal.
func (p VXLANPeer) SatisfiedBy(have VXLANPeer) bool { return p == have }

// String identifies the object.
func (p VXLANPeer) String() string { return p.Key() }
