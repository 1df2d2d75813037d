package objects

import "loxilb/internal/lb/netobj"

// Network returns all kinds, with the ledger of objects made here.
func (k *Kernel) Network(l *Ledger) *netobj.Network {
	return &netobj.Network{
		Devices: k, Addresses: Addresses{k}, Routes: Routes{k}, Neighbors: Neighbors{k}, FDBs: FDBs{k},
		VLANs: VLANs{k}, Members: VLANMembers{k}, VXLANs: VXLANs{k}, Peers: VXLANPeers{k},
		Created: func(kind, key string) bool { return l.Get(kind, key) != nil },
	}
}
