package network

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb/netobj"
)

func vxlanKind(a *API) netKind[netobj.VXLAN] {
	return netKind[netobj.VXLAN]{table: a.Store.VXLANs, kernel: a.Network.VXLANs}
}

func vxlanPeerKind(a *API) netKind[netobj.VXLANPeer] {
	return netKind[netobj.VXLANPeer]{table: a.Store.Peers, kernel: a.Network.Peers}
}

// CreateVxlan creates a tunnel.
func (a *API) CreateVxlan(w http.ResponseWriter, r *http.Request) {
	createNet(a, w, r, vxlanKind(a), func(body *v1.Vxlan) (netobj.VXLAN, error) {
		o := netobj.VXLAN{ID: body.VxlanID, Dev: body.EpIntf}
		return o, o.Validate()
	})
}

// DeleteVxlan deletes a tunnel, and the objects in it.
func (a *API) DeleteVxlan(w http.ResponseWriter, r *http.Request, id string, _ v1.DeleteVxlanParams) {
	n, err := netobj.ParseVXLANID("vxlanID", id)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	o := netobj.VXLAN{ID: n}
	deleteNet(a, w, r, vxlanKind(a), o.Key(), func(tx *store.Tx) error {
		return deleteThose(tx, a.Store.Peers, func(p netobj.VXLANPeer) bool { return p.ID == n })
	}, a.dropDevice(o.Device()))
}

// CreateVxlanPeer adds a peer to a tunnel.
func (a *API) CreateVxlanPeer(w http.ResponseWriter, r *http.Request, id string) {
	createNet(a, w, r, vxlanPeerKind(a), func(body *v1.VxlanPeer) (netobj.VXLANPeer, error) {
		return netobj.ParseVXLANPeer(id, body.PeerIP)
	})
}

// DeleteVxlanPeer removes a peer from a tunnel.
func (a *API) DeleteVxlanPeer(w http.ResponseWriter, r *http.Request, id, peer string) {
	o, err := netobj.ParseVXLANPeer(id, peer)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	deleteNet(a, w, r, vxlanPeerKind(a), o.Key())
}

// GetVxlans replies with the tunnels and their peers.
func (a *API) GetVxlans(w http.ResponseWriter, _ *http.Request) {
	seen, err := a.Network.VXLANs.Observed()
	if err != nil {
		objects.KernelProblem(err).Write(w)
		return
	}
	out := v1.VxlanList{VxlanAttr: []v1.VxlanEntry{}}
	for _, v := range seen {
		out.VxlanAttr = append(out.VxlanAttr, v1.VxlanEntry{VxlanName: v.Name, EpIntf: v.Real, VxlanID: v.ID, PeerIP: texts(v.Peers)})
	}
	rest.JSON(w, out)
}
