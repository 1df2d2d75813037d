package network

import (
	"net/http"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

func vlanKind(a *API) netKind[netobj.VLAN] {
	return netKind[netobj.VLAN]{table: a.Store.VLANs, kernel: a.Network.VLANs}
}

func vlanMemberKind(a *API) netKind[netobj.VLANMember] {
	return netKind[netobj.VLANMember]{table: a.Store.Members, kernel: a.Network.Members}
}

// CreateVlan creates the bridge of a VLAN.
func (a *API) CreateVlan(w http.ResponseWriter, r *http.Request) {
	createNet(a, w, r, vlanKind(a), func(body *v1.Vlan) (netobj.VLAN, error) {
		o := netobj.VLAN{ID: body.Vid}
		return o, o.Validate()
	})
}

// DeleteVlan deletes the bridge of a VLAN, and the objects in it.
func (a *API) DeleteVlan(w http.ResponseWriter, r *http.Request, id string, _ v1.DeleteVlanParams) {
	o, err := netobj.ParseVLAN("vlan_id", id)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	deleteNet(a, w, r, vlanKind(a), o.Key(), func(tx *store.Tx) error {
		return deleteThose(tx, a.Store.Members, func(m netobj.VLANMember) bool { return m.VLAN == o.ID })
	}, a.dropDevice(o.Device()))
}

// dropDevice removes the stored objects of an interface.
func (a *API) dropDevice(name string) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		err := deleteThose(tx, a.Store.Addresses, func(o netobj.Address) bool { return o.Dev == name })
		if err == nil {
			err = deleteThose(tx, a.Store.Neighbors, func(o netobj.Neighbor) bool { return o.Dev == name })
		}
		if err == nil {
			err = deleteThose(tx, a.Store.FDBs, func(o netobj.FDB) bool { return o.Dev == name })
		}
		return err
	}
}

func deleteThose[T netobj.Object[T]](tx *store.Tx, t store.Table[T], which func(T) bool) error {
	for o := range t.All(tx) {
		if !which(o) {
			continue
		}
		if err := t.Delete(tx, o.Key()); err != nil {
			return err
		}
	}
	return nil
}

// CreateVlanMember adds an interface to a VLAN.
func (a *API) CreateVlanMember(w http.ResponseWriter, r *http.Request, id string, _ v1.CreateVlanMemberParams) {
	createNet(a, w, r, vlanMemberKind(a), func(body *v1.VlanMember) (netobj.VLANMember, error) {
		return netobj.ParseVLANMember(id, body.Dev, body.Tagged)
	})
}

// DeleteVlanMember removes an interface from a VLAN.
func (a *API) DeleteVlanMember(w http.ResponseWriter, r *http.Request, id, dev, tagged string) {
	with, err := strconv.ParseBool(tagged)
	if err != nil {
		rest.RefuseError(http.StatusBadRequest, lb.NewFieldError("tagged", tagged, "is not a choice", "true, false")).Write(w)
		return
	}
	o, err := netobj.ParseVLANMember(id, dev, with)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	deleteNet(a, w, r, vlanMemberKind(a), o.Key())
}

// GetVlans replies with the VLANs and their members.
func (a *API) GetVlans(w http.ResponseWriter, _ *http.Request) {
	seen, err := a.Network.VLANs.Observed()
	if err != nil {
		objects.KernelProblem(err).Write(w)
		return
	}
	out := v1.VlanList{VlanAttr: []v1.VlanEntry{}}
	for _, v := range seen {
		e := v1.VlanEntry{Vid: v.ID, Dev: v.Dev, Member: []v1.VlanMember{}, VlanStatistic: v1.VlanStatistic{
			InBytes: int64(v.In.Bytes), InPackets: int64(v.In.Packets), OutBytes: int64(v.Out.Bytes), OutPackets: int64(v.Out.Packets),
		}}
		for _, m := range v.Members {
			e.Member = append(e.Member, v1.VlanMember{Dev: m.Dev, Tagged: m.Tagged})
		}
		out.VlanAttr = append(out.VlanAttr, e)
	}
	rest.JSON(w, out)
}
