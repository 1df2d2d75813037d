package main

import (
	"context"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/kernel/netdev/objects"
	"loxilb/internal/lb/netobj"
)

// netObjects are the loops of the objects of the kernel's network, by kind.
type netObjects map[string]interface {
	Run(context.Context)
	KernelChanged(keys []string)
}

func newNetObjects(s *desired.State, n *netobj.Network, made *objects.Ledger, o reconcile.Observers) netObjects {
	return netObjects{
		netobj.AddressKind:    reconcile.NewNetObjects(netobj.AddressKind, s, s.Addresses, n.Addresses, made, o),
		netobj.RouteKind:      reconcile.NewNetObjects(netobj.RouteKind, s, s.Routes, n.Routes, made, o),
		netobj.NeighborKind:   reconcile.NewNetObjects(netobj.NeighborKind, s, s.Neighbors, n.Neighbors, made, o),
		netobj.FDBKind:        reconcile.NewNetObjects(netobj.FDBKind, s, s.FDBs, n.FDBs, made, o),
		netobj.VLANKind:       reconcile.NewNetObjects(netobj.VLANKind, s, s.VLANs, n.VLANs, made, o),
		netobj.VLANMemberKind: reconcile.NewNetObjects(netobj.VLANMemberKind, s, s.Members, n.Members, made, o),
		netobj.VXLANKind:      reconcile.NewNetObjects(netobj.VXLANKind, s, s.VXLANs, n.VXLANs, made, o),
		netobj.VXLANPeerKind:  reconcile.NewNetObjects(netobj.VXLANPeerKind, s, s.Peers, n.Peers, made, o),
	}
}

// changed has the loop of a kind look at what the kernel has: of these keys, or of all if keys is
// nil.
func (n netObjects) changed(kind string, keys []string) {
	if loop := n[kind]; loop != nil {
		loop.KernelChanged(keys)
	}
}
