package policy

import (
	"net/netip"
	"strconv"

	"loxilb/internal/lb"
)

// MirrorType is the encapsulation of copies. The numbers are the existing loxilb's, which lacks
// VXLAN.
type MirrorType uint8

// The types.
const (
	SPAN        MirrorType = 0 // to an interface
	RSPAN       MirrorType = 1 // to an interface, with a VLAN's tag
	ERSPAN      MirrorType = 2 // to an address, by ERSPAN (version 1, type II)
	VXLANMirror MirrorType = 3 // to an address, by VXLAN
)

func mirrorWords() []string { return []string{"span", "rspan", "erspan", "vxlan"} }

func (m MirrorType) String() string { return mirrorWords()[m%4] }

// ParseMirrorType parses the existing loxilb's number, or the word.
func ParseMirrorType(text string) (MirrorType, error) {
	for i, word := range mirrorWords() {
		if text == word || text == strconv.Itoa(i) {
			return MirrorType(i), nil
		}
	}
	return 0, lb.NewFieldError(lb.FieldMirrorType, text, "is not a type of mirror", "0 (span), 1 (rspan), 2 (erspan) or 3 (vxlan)")
}

// Mirror copies packets, including packets that are dropped later.
type Mirror struct {
	Name       string     `json:"name"`
	Type       MirrorType `json:"type,omitempty"`
	Port       string     `json:"port,omitempty"`     // of span and rspan
	VLAN       uint16     `json:"vlan,omitempty"`     // of rspan
	Remote     netip.Addr `json:"remote,omitzero"`    // of erspan and vxlan: destination of copies
	Source     netip.Addr `json:"source,omitzero"`    // of erspan and vxlan: source of copies
	TunnelID   uint32     `json:"tunnelID,omitempty"` // ERSPAN session, or VNI of VXLAN
	OneOf      uint32     `json:"oneOf,omitempty"`    // copies one packet of this many; 0: all
	Attachment Attachment `json:"attachment"`
}

// Limits of a mirror's numbers.
const (
	maxVLAN          = 4094
	maxERSPANSession = 1023
	maxVNI           = 1<<24 - 1
	maxOneOf         = 1_000_000
)

// Tunneled reports whether copies are sent to an address.
func (m *Mirror) Tunneled() bool { return m.Type == ERSPAN || m.Type == VXLANMirror }

// Validate checks all fields.
func (m Mirror) Validate() error {
	if err := validateIdent(m.Name); err != nil {
		return err
	}
	if m.Type > VXLANMirror {
		return lb.NewFieldError(lb.FieldMirrorType, strconv.Itoa(int(m.Type)), "is not a type of mirror", "0 (span), 1 (rspan), 2 (erspan) or 3 (vxlan)")
	}
	if m.OneOf > maxOneOf {
		return lb.NewFieldError(lb.FieldSample, strconv.FormatUint(uint64(m.OneOf), 10), "is out of range", "1 (all) to 1000000")
	}
	validate := m.validateTunnel
	if !m.Tunneled() {
		validate = m.validatePort
	}
	if err := validate(); err != nil {
		return err
	}
	if m.Attachment.To == AttachPort && m.Attachment.Name == m.Port {
		return lb.NewFieldError(lb.FieldMirrorPort, m.Port, "is also the mirrored port", "another interface")
	}
	return m.Attachment.Validate()
}

func (m *Mirror) validatePort() error {
	if err := lb.ValidateDevice(lb.FieldMirrorPort, m.Port); err != nil {
		return err
	}
	if m.Type == RSPAN && (m.VLAN < 1 || m.VLAN > maxVLAN) {
		return lb.NewFieldError(lb.FieldVLAN, strconv.Itoa(int(m.VLAN)), "is out of range", "1 to 4094")
	}
	return nil
}

func (m *Mirror) validateTunnel() error {
	switch {
	case !m.Remote.IsValid() || m.Remote.IsUnspecified() || m.Remote.IsMulticast() || m.Remote.Zone() != "":
		return lb.NewFieldError(lb.FieldRemote, lb.AddressText(m.Remote), "is not the address of a collector", "an IPv4 or IPv6 address")
	case !m.Source.IsValid() || m.Source.IsUnspecified() || m.Source.IsMulticast() || m.Source.Zone() != "":
		return lb.NewFieldError(lb.FieldMirrorSource, lb.AddressText(m.Source), "is not an address of this machine", "an IPv4 or IPv6 address")
	case m.Remote.Is4() != m.Source.Is4():
		return lb.NewFieldError(lb.FieldMirrorSource, lb.AddressText(m.Source), "is of another IP version than the collector", "an address of the same version as "+m.Remote.String())
	case m.Type == ERSPAN && (m.TunnelID < 1 || m.TunnelID > maxERSPANSession):
		return lb.NewFieldError(lb.FieldTunnelID, strconv.FormatUint(uint64(m.TunnelID), 10), "is out of range", "1 to 1023")
	case m.Type == VXLANMirror && (m.TunnelID < 1 || m.TunnelID > maxVNI):
		return lb.NewFieldError(lb.FieldTunnelID, strconv.FormatUint(uint64(m.TunnelID), 10), "is out of range", "1 to 16777215")
	}
	return nil
}

// Normal returns the mirror as it is stored: without members that its type does not use.
func (m Mirror) Normal() Mirror {
	m.Remote, m.Source = m.Remote.Unmap(), m.Source.Unmap()
	if m.Tunneled() {
		m.Port, m.VLAN = "", 0
	} else {
		m.Remote, m.Source, m.TunnelID = netip.Addr{}, netip.Addr{}, 0
	}
	if m.Type != RSPAN {
		m.VLAN = 0
	}
	if m.OneOf == 1 {
		m.OneOf = 0
	}
	m.Attachment = m.Attachment.Normal()
	return m
}

// MirrorStats are a mirror's state and counters.
type MirrorStats struct {
	Packets, Bytes uint64 // copied
	Lost           uint64 // copies that were not sent: the interface was full, or memory was short
	Attached       int    // services, prefixes or interfaces that are mirrored now; 0 without an interface to send copies to
}
