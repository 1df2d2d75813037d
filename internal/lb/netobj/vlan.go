package netobj

import (
	"fmt"
	"strconv"

	"loxilb/internal/lb"
)

// The names of the kinds.
const (
	VLANKind       = "vlan"
	VLANMemberKind = "vlanmember"
)

// maxVLAN is the highest number of a VLAN: 4095 is reserved.
const maxVLAN = 4094

// VLAN is a bridge with the name vlanN.
type VLAN struct {
	ID       int    `json:"vid"`
	LinkType string `json:"-"` // in the kernel only: type of a link with this name that is not a bridge
}

// ParseVLAN parses the number of a VLAN. field names it in errors.
func ParseVLAN(field, text string) (v VLAN, err error) {
	if v.ID, err = strconv.Atoi(text); err != nil {
		return v, lb.NewFieldError(field, text, "is not the number of a VLAN", fmt.Sprintf("1 to %d", maxVLAN))
	}
	return v, checkVLAN(field, v.ID)
}

func checkVLAN(field string, id int) error {
	if id < 1 || id > maxVLAN {
		return lb.NewFieldError(field, strconv.Itoa(id), "is not the number of a VLAN", fmt.Sprintf("1 to %d", maxVLAN))
	}
	return nil
}

// Key returns the number.
func (v VLAN) Key() string { return strconv.Itoa(v.ID) }

// Device returns the bridge: vlan100.
func (v VLAN) Device() string { return "vlan" + v.Key() }

// Validate refuses numbers that no VLAN has.
func (v VLAN) Validate() error { return checkVLAN("vid", v.ID) }

// Needs returns no interface.
func (v VLAN) Needs() []string { return nil }

// SatisfiedBy reports whether both are equal.
func (v VLAN) SatisfiedBy(have VLAN) bool { return v == have }

// String identifies the object.
func (v VLAN) String() string {
	if v.LinkType != "" {
		return fmt.Sprintf("%s (a %s)", v.Device(), v.LinkType)
	}
	return v.Key()
}

// VLANMember is an interface in the bridge of a VLAN: the interface itself, or, tagged, an
// interface eth0.100 on top of it for frames with the VLAN's tag.
type VLANMember struct {
	VLAN   int    `json:"vid"`
	Dev    string `json:"dev"`
	Tagged bool   `json:"tagged,omitempty"`
}

// ParseVLANMember parses a member in the API's form.
func ParseVLANMember(vid, dev string, tagged bool) (m VLANMember, err error) {
	v, err := ParseVLAN("vlan_id", vid)
	if err != nil {
		return m, err
	}
	m = VLANMember{VLAN: v.ID, Dev: dev, Tagged: tagged}
	return m, m.Validate()
}

// Key is "100 eth0", followed by "tagged" for a tagged member.
func (m VLANMember) Key() string {
	if m.Tagged {
		return fmt.Sprintf("%d %s tagged", m.VLAN, m.Dev)
	}
	return fmt.Sprintf("%d %s", m.VLAN, m.Dev)
}

// Bridge returns the bridge of the VLAN.
func (m VLANMember) Bridge() string { return VLAN{ID: m.VLAN}.Device() }

// Port returns the interface that is in the bridge.
func (m VLANMember) Port() string {
	if m.Tagged {
		return fmt.Sprintf("%s.%d", m.Dev, m.VLAN)
	}
	return m.Dev
}

// Validate refuses names that the kernel would refuse.
func (m VLANMember) Validate() error {
	if err := checkVLAN("vlan_id", m.VLAN); err != nil {
		return err
	}
	if err := lb.ValidateDevice("dev", m.Dev); err != nil {
		return err
	}
	switch {
	case len(m.Port()) > lb.MaxDeviceName:
		return lb.NewFieldError("dev", m.Dev, "is too long for a tagged member: "+m.Port()+" would be an interface", fmt.Sprintf("%d characters with the dot and the number", lb.MaxDeviceName))
	case m.Dev == m.Bridge():
		return lb.NewFieldError("dev", m.Dev, "is the bridge of the VLAN itself", "another interface")
	}
	return nil
}

// Needs returns the bridge and the interface.
func (m VLANMember) Needs() []string { return []string{m.Bridge(), m.Dev} }

// SatisfiedBy reports whether both are equal.
func (m VLANMember) SatisfiedBy(have VLANMember) bool { return m == have }

// String identifies the object.
func (m VLANMember) String() string { return m.Key() }
