package netobj

import "net/netip"

// What the kernel has, as users look at it, whoever made it.

// DeviceAddresses are those of an interface.
type DeviceAddresses struct {
	Dev       string
	Addresses []netip.Prefix
}

// SeenRoute is a way of a route of the main table. One without a gateway is of a network that is
// attached.
type SeenRoute struct {
	Route
	Dev string
	TOS uint8 // of the packets that it is for; 0: any
}

// SeenVLAN is a bridge that is a VLAN by its name, with its members. Its traffic is that of the
// members.
type SeenVLAN struct {
	ID      int
	Dev     string
	Members []VLANMember
	In, Out Traffic
}

// SeenVXLAN is a tunnel, with the addresses to which it sends what is for everybody.
type SeenVXLAN struct {
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
	Master      string // the bridge or bond that it is of
	Real        string // the interface that it is on top of
	Tunnel      int    // the number of a tunnel
	VLAN        int    // the VLAN that it is of
	Tagged      bool   // with tags
	Addresses   []netip.Prefix
	Rx, Tx      Traffic
}

// Traffic is what an interface has received or sent.
type Traffic struct{ Bytes, Packets, Errors uint64 }

// PortType is what an interface is, in the contract's numbers: several of them are added.
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
