// Package network has the commands about the kernel's network: addresses, routes, VLANs, tunnels,
// interfaces, and BGP neighbors.
package network

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {
			addressKind(o).Describe(o),
			fdbKind().Describe(o),
			routeKind(o).Describe(o),
			vlanKind(o).Describe(o),
			vxlanKind().Describe(o),
			neighborKind().Describe(o),
			portKind(o).Describe(o),
		},
		session.Get: {
			addressKind(o).Get(o),
			fdbKind().Get(o),
			neighborKind().Get(o),
			portKind(o).Get(o),
			routeKind(o).Get(o),
			vlanKind(o).Get(o),
			vxlanKind().Get(o),
		},
		session.Create: {
			createAddress(o),
			createBGPNeighbor(o),
			createFDB(o),
			createNeighbor(o),
			createRoute(o),
			createVLAN(o),
			createVLANMember(o),
			createVXLAN(o),
			createVXLANPeer(o),
		},
		session.Delete: {
			deleteAddress(o),
			deleteBGPNeighbor(o),
			deleteFDB(o),
			deleteNeighbor(o),
			deleteRoute(o),
			deleteVLAN(o),
			deleteVLANMember(o),
			deleteVXLAN(o),
			deleteVXLANPeer(o),
		},
	}
}
