package objects

import "loxilb/internal/netobj"

// Network is all kinds.
func (k *Kernel) Network() *netobj.Network {
	return &netobj.Network{
		Devices: k, Addresses: Addresses{k}, Routes: Routes{k}, Neighbors: Neighbors{k}, FDBs: FDBs{k},
		VLANs: VLANs{k}, Members: VLANMembers{k}, VXLANs: VXLANs{k}, Peers: VXLANPeers{k},
	}
}
