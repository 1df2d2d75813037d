// Package network has the commands about the kernel's network: addresses, routes, VLANs, tunnels,
// interfaces.
package network

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {describeAddress(o), describeFDB(o), describeRoute(o), describeVLAN(o), describeVXLAN(o), describeNeighbor(o), describePort(o)},
		session.Get:      {getAddress(o), getFDB(o), getNeighbor(o), getPort(o), getRoute(o), getVLAN(o), getVXLAN(o)},
		session.Create: {
			createAddress(o),
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
