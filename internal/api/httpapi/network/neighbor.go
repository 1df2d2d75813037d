package network

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/netobj"
)

func neighborKind(a *API) netKind[netobj.Neighbor] {
	return netKind[netobj.Neighbor]{table: a.Store.Neighbors, kernel: a.Network.Neighbors, found: a.Network.Neighbors.Observed}
}

// CreateNeighbor sets the MAC address of a host.
func (a *API) CreateNeighbor(w http.ResponseWriter, r *http.Request) {
	createNet(a, w, r, neighborKind(a), func(body *v1.Neighbor) (netobj.Neighbor, error) {
		return netobj.ParseNeighbor(body.IpAddress, body.Dev, body.MacAddress)
	})
}

// DeleteNeighbor deletes a neighbour: the kernel resolves its address by ARP or ND again.
func (a *API) DeleteNeighbor(w http.ResponseWriter, r *http.Request, ip, dev string) {
	key, err := netobj.NeighborKey(ip, dev)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	deleteNet(a, w, r, neighborKind(a), key)
}

// GetNeighbors replies with all neighbors that have a MAC address.
func (a *API) GetNeighbors(w http.ResponseWriter, r *http.Request) {
	seen, err := a.Network.Neighbors.Observed()
	if err != nil {
		objects.KernelProblem(err).Write(w)
		return
	}
	out := rest.NewList(w, "neighborAttr")
	for _, n := range seen {
		if r.Context().Err() != nil || !out.Item(&v1.Neighbor{IpAddress: n.Addr.String(), Dev: n.Dev, MacAddress: n.MAC.String()}) {
			return
		}
	}
	out.End()
}
