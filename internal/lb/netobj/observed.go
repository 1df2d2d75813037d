package netobj

import "net/netip"

// Types of the kernel's objects as users see them, whichever program has made them.

// DeviceAddresses are the addresses of an interface.
type DeviceAddresses struct {
	Dev       string
	Addresses []netip.Prefix
}

// ObservedRoute is a path of a route of the main table. Without a gateway, it leads to a directly
// connected network.
type ObservedRoute struct {
	Route
	Dev string
	TOS uint8 // TOS of the packets that use the route; 0: any
}

// ObservedVLAN is a bridge with the name of a VLAN, and its members. Its traffic is the sum of its
// members'.
type ObservedVLAN struct {
	ID      int
	Dev     string
	Members []VLANMember
	In, Out Traffic
}

// ObservedVXLAN is a tunnel, with the addresses to which it sends broadcasts.
type ObservedVXLAN struct {
	ID         int
	Name, Real string
	Peers      []netip.Addr
}

// Port is an interface.
type Port struct {
	Index       int
	Name        string
	MAC         []byte
	MTU         int
	Carrier, Up bool
	Type        PortType
	Master      string // its bridge or bond
	Real        string // the interface below it
	Tunnel      int    // VNI of a tunnel
	VLAN        int    // VLAN of a bridge or member
	Tagged      bool   // a member that is tagged
	Addresses   []netip.Prefix
	Rx, Tx      Traffic
}

// Traffic counts the received or the sent packets of an interface.
type Traffic struct{ Bytes, Packets, Errors uint64 }

// PortType is the type of an interface, as a sum of the existing loxilb's numbers.
type PortType int

// The types.
const (
	PortReal        PortType = 0x1
	PortBondMember  PortType = 0x2
	PortBond        PortType = 0x4
	PortVLANMember  PortType = 0x8
	PortVLAN        PortType = 0x10
	PortVXLANMember PortType = 0x20
	PortVXLAN       PortType = 0x40
)
