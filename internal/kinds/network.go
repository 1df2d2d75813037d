package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb/netobj"
)

// netObject registers a kind of objects of the kernel's network.
func netObject[T netobj.Object[T], B any](words Words) *Kind[T, B] {
	stored := asJSON(func(o T) string { return o.Key() }, func(o T) error { return o.Validate() })
	stored.Max = 65536 // all are compared with the kernel at once
	stored.Plural = "objects of kind " + words.Name
	return &Kind[T, B]{Words: words, Stored: stored}
}

// Address registers addresses of interfaces.
func Address() *Kind[netobj.Address, v1.DeviceAddress] {
	return netObject[netobj.Address, v1.DeviceAddress](Words{
		Name: netobj.AddressKind, Document: AddressDocument, Command: "ip", Aliases: []string{"ipv4address", "ipv4", "ipaddress"}, List: "ipAttr",
	})
}

// Route registers routes of the main table.
func Route() *Kind[netobj.Route, v1.Route] {
	return netObject[netobj.Route, v1.Route](Words{Name: netobj.RouteKind, Document: RouteDocument, Command: "route", List: "routeAttr"})
}

// Neighbor registers hosts with a configured MAC address.
func Neighbor() *Kind[netobj.Neighbor, v1.Neighbor] {
	return netObject[netobj.Neighbor, v1.Neighbor](Words{
		Name: netobj.NeighborKind, Document: NeighborDocument, Command: "neighbor", Aliases: []string{"nei", "neigh"}, List: "neighborAttr",
	})
}

// FDB registers entries of forwarding tables.
func FDB() *Kind[netobj.FDB, v1.Fdb] {
	return netObject[netobj.FDB, v1.Fdb](Words{Name: netobj.FDBKind, Document: FDBDocument, Command: "fdb", List: "fdbAttr"})
}

// VLAN registers VLANs.
func VLAN() *Kind[netobj.VLAN, v1.Vlan] {
	return netObject[netobj.VLAN, v1.Vlan](Words{Name: netobj.VLANKind, Document: VLANDocument, Command: "vlan", List: "vlanAttr", SpecOptional: true})
}

// VLANMember registers interfaces in VLANs.
func VLANMember() *Kind[netobj.VLANMember, v1.VlanMember] {
	return netObject[netobj.VLANMember, v1.VlanMember](Words{
		Name: netobj.VLANMemberKind, Document: VLANMemberDocument, Command: "vlanmember", Aliases: []string{"vlanMember", "vlan-member", "vlan_member"},
	})
}

// VXLAN registers tunnels.
func VXLAN() *Kind[netobj.VXLAN, v1.Vxlan] {
	return netObject[netobj.VXLAN, v1.Vxlan](Words{Name: netobj.VXLANKind, Document: VXLANDocument, Command: "vxlan", List: "vxlanAttr"})
}

// VXLANPeer registers peers of tunnels.
func VXLANPeer() *Kind[netobj.VXLANPeer, v1.VxlanPeer] {
	return netObject[netobj.VXLANPeer, v1.VxlanPeer](Words{
		Name: netobj.VXLANPeerKind, Document: VXLANPeerDocument, Command: "vxlanpeer", Aliases: []string{"vxlanPeer", "vxlan-peer", "vxlan_peer"},
	})
}
