package lb

import (
	"net/netip"
	"strconv"
)

// Session is a mobile user whose packets pass this machine in GTP-U tunnels (3GPP TS 29.281),
// between the base station and the user plane function.
type Session struct {
	Name   string     `json:"name"`
	User   netip.Addr `json:"user"`   // the user's own address
	Access TunnelEnd  `json:"access"` // at the base station: for packets to the user
	Core   TunnelEnd  `json:"core"`   // at the user plane function: for packets of the user
}

// TunnelEnd is the destination of a tunnel's packets.
type TunnelEnd struct {
	TEID uint32     `json:"teid"`
	Addr netip.Addr `json:"addr"`
}

// Validate checks all fields.
func (s Session) Validate() error {
	if s.Name == "" {
		return NewFieldError(FieldSession, "", "is missing", "a name")
	}
	if err := ValidateName(FieldName, s.Name); err != nil {
		return err
	}
	if !isHost(s.User) {
		return NewFieldError(FieldUser, AddressText(s.User), "is not the address of a user", "an IPv4 or IPv6 address")
	}
	for _, end := range []struct {
		field string
		end   TunnelEnd
	}{{FieldAccessTunnel, s.Access}, {FieldCoreTunnel, s.Core}} {
		if !isHost(end.end.Addr) {
			return NewFieldError(end.field, AddressText(end.end.Addr), "is not the address of a tunnel's end", "an IPv4 or IPv6 address")
		}
	}
	if s.Access.Addr.Is4() != s.Core.Addr.Is4() {
		return NewFieldError(FieldCoreTunnel, s.Core.Addr.String(), "is of another IP version than the access tunnel, "+s.Access.Addr.String(), "both IPv4, or both IPv6")
	}
	return nil
}

// SessionFlow selects packets of a session by the address that its user talks to. They leave the
// tunnel at this machine, and answers enter the tunnel to the base station. All other packets of
// the user stay in their tunnel.
type SessionFlow struct {
	Session string     `json:"session"` // its name
	Peer    netip.Addr `json:"peer"`
	QFI     uint8      `json:"qfi"` // the QoS flow of packets to the user (TS 38.415)
}

// MaxQFI is the highest identifier of a QoS flow.
const MaxQFI = 63

// Key returns the flow's key: its session and address.
func (f SessionFlow) Key() string { return f.Session + "/" + AddressText(f.Peer) }

// Validate checks all fields.
func (f SessionFlow) Validate() error {
	if f.Session == "" {
		return NewFieldError(FieldSession, "", "is missing", "the name of a session")
	}
	if err := ValidateName(FieldName, f.Session); err != nil {
		return err
	}
	if !isHost(f.Peer) {
		return NewFieldError(FieldPeer, AddressText(f.Peer), "is not the address of a host", "an IPv4 or IPv6 address")
	}
	if f.QFI > MaxQFI {
		return NewFieldError(FieldQFI, strconv.Itoa(int(f.QFI)), "is out of range", "0 to 63")
	}
	return nil
}

// isHost reports whether an address can belong to a single remote host, which routes reach without
// a named interface.
func isHost(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.Zone() == "" &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && (a.Is4() || !a.IsLinkLocalUnicast())
}

// AddressText returns an address as text; not valid: "".
func AddressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
