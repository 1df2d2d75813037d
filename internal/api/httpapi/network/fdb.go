package network

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/netobj"
)

func fdbKind(a *API) netKind[netobj.FDB] {
	return netKind[netobj.FDB]{table: a.Store.FDBs, kernel: a.Network.FDBs, found: a.Network.FDBs.Observed}
}

// CreateFdb sets the interface by which a MAC address is reached.
func (a *API) CreateFdb(w http.ResponseWriter, r *http.Request) {
	createNet(a, w, r, fdbKind(a), func(body *v1.Fdb) (netobj.FDB, error) {
		return netobj.ParseFDB(body.MacAddress, body.Dev)
	})
}

// DeleteFdb deletes a forwarding entry.
func (a *API) DeleteFdb(w http.ResponseWriter, r *http.Request, mac, dev string) {
	o, err := netobj.ParseFDB(mac, dev)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	deleteNet(a, w, r, fdbKind(a), o.Key())
}

// GetFdbs replies with the forwarding tables.
func (a *API) GetFdbs(w http.ResponseWriter, r *http.Request) {
	seen, err := a.Network.FDBs.Observed()
	if err != nil {
		objects.KernelProblem(err).Write(w)
		return
	}
	out := rest.NewList(w, "fdbAttr")
	for _, f := range seen {
		if r.Context().Err() != nil || !out.Item(&v1.Fdb{Dev: f.Dev, MacAddress: f.MAC.String()}) {
			return
		}
	}
	out.End()
}
