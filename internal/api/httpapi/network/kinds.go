package network

import (
	"encoding/json"
	"slices"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/netobj"
)

// netObjects returns the Kind of network objects of one kind. Existing objects keep their owner.
func netObjects[T netobj.Object[T]](a *API, words kinds.Words, table store.Table[T], k func(*API) netKind[T], read func(o *v1.Object) (T, *rest.Problem), show func(*T) any) objects.Kind {
	row := objects.KindOf(words, table, func(o *v1.Object, _ bool) (T, *rest.Problem) { return read(o) }, show, rest.BadRequest)
	row.Kernel = true
	row.Outside = func(made map[string]bool, list []any) func(w *objects.Wanted) (there bool, p *rest.Problem) {
		kind := k(a)
		now := a.Store.Snapshot()
		var others []T // not in the store
		for _, value := range list {
			if o, ok := value.(T); ok {
				if _, stored := table.Get(now, o.Key()); !stored {
					others = append(others, o)
				}
			}
		}
		var have map[string][]T
		var err error
		if len(others) > 0 {
			have, _, err = netobj.FindAll(kind.kernel, others)
		}
		return func(w *objects.Wanted) (bool, *rest.Problem) {
			o, ok := w.Value.(T)
			if _, stored := table.Get(now, w.Key); stored || !ok {
				return false, nil
			}
			if err != nil {
				return false, objects.KernelProblem(err)
			}
			missing := slices.DeleteFunc(o.Needs(), func(dev string) bool { return made[dev] })
			if p := a.needsDevices(missing); p != nil {
				return false, p
			}
			return kind.isPresent(o, have[w.Key])
		}
	}
	return row
}

// ObjectKinds returns the Kinds of the kernel's network.
func (a *API) ObjectKinds() []objects.Kind {
	return []objects.Kind{
		netObjects(a, kinds.Address().Words, a.Store.Addresses, addressKind, objects.Spec(func(s *v1.DeviceAddress) (netobj.Address, error) {
			return netobj.ParseAddress(s.Dev, s.IpAddress)
		}), func(o *netobj.Address) any { return &v1.DeviceAddress{Dev: o.Dev, IpAddress: o.Prefix.String()} }),
		netObjects(a, kinds.Route().Words, a.Store.Routes, routeKind, objects.Spec(func(s *v1.Route) (netobj.Route, error) {
			return netobj.ParseRoute(s.DestinationIPNet, s.Gateway, s.Protocol)
		}), showRoute),
		netObjects(a, kinds.Neighbor().Words, a.Store.Neighbors, neighborKind, objects.Spec(func(s *v1.Neighbor) (netobj.Neighbor, error) {
			return netobj.ParseNeighbor(s.IpAddress, s.Dev, s.MacAddress)
		}), func(o *netobj.Neighbor) any {
			return &v1.Neighbor{IpAddress: o.Addr.String(), Dev: o.Dev, MacAddress: o.MAC.String()}
		}),
		netObjects(a, kinds.FDB().Words, a.Store.FDBs, fdbKind, objects.Spec(func(s *v1.Fdb) (netobj.FDB, error) {
			return netobj.ParseFDB(s.MacAddress, s.Dev)
		}), func(o *netobj.FDB) any { return &v1.Fdb{Dev: o.Dev, MacAddress: o.MAC.String()} }),
		netObjects(a, kinds.VLAN().Words, a.Store.VLANs, vlanKind, readVLAN, func(o *netobj.VLAN) any { return &v1.Vlan{Vid: o.ID} }),
		netObjects(a, kinds.VXLAN().Words, a.Store.VXLANs, vxlanKind, objects.Spec(func(s *v1.Vxlan) (netobj.VXLAN, error) {
			o := netobj.VXLAN{ID: s.VxlanID, Dev: s.EpIntf}
			return o, o.Validate()
		}), func(o *netobj.VXLAN) any { return &v1.Vxlan{VxlanID: o.ID, EpIntf: o.Dev} }),
		a.vlanMemberObjects(),
		a.vxlanPeerObjects(),
	}
}

// readVLAN reads a VLAN of a list. Its ID may be in the metadata instead of the spec.
func readVLAN(o *v1.Object) (vlan netobj.VLAN, p *rest.Problem) {
	named := *o
	if len(o.Spec) == 0 || string(o.Spec) == "{}" {
		vid, p := objects.Number(o, "vid")
		if p != nil {
			return vlan, p
		}
		named.Spec = json.RawMessage(`{"vid":` + vid + `}`)
	}
	return objects.Spec(func(s *v1.Vlan) (netobj.VLAN, error) {
		o := netobj.VLAN{ID: s.Vid}
		return o, o.Validate()
	})(&named)
}

// vlanMemberObjects returns the Kind of VLAN members. Their metadata contains the VLAN ID.
func (a *API) vlanMemberObjects() objects.Kind {
	row := netObjects(a, kinds.VLANMember().Words, a.Store.Members, vlanMemberKind, func(o *v1.Object) (m netobj.VLANMember, p *rest.Problem) {
		vid, p := objects.Number(o, "vid")
		if p != nil {
			return m, p
		}
		return objects.Spec(func(s *v1.VlanMember) (netobj.VLANMember, error) {
			return netobj.ParseVLANMember(vid, s.Dev, s.Tagged)
		})(o)
	}, func(o *netobj.VLANMember) any { return &v1.VlanMember{Dev: o.Dev, Tagged: o.Tagged} })
	row.Metadata = func(v store.View, key string) map[string]any {
		o, _ := a.Store.Members.Get(v, key)
		return map[string]any{"vid": o.VLAN}
	}
	return row
}

// vxlanPeerObjects returns the Kind of VXLAN peers. Their metadata contains the VNI.
func (a *API) vxlanPeerObjects() objects.Kind {
	row := netObjects(a, kinds.VXLANPeer().Words, a.Store.Peers, vxlanPeerKind, func(o *v1.Object) (peer netobj.VXLANPeer, p *rest.Problem) {
		id, p := objects.Number(o, "vxlanID")
		if p != nil {
			return peer, p
		}
		return objects.Spec(func(s *v1.VxlanPeer) (netobj.VXLANPeer, error) { return netobj.ParseVXLANPeer(id, s.PeerIP) })(o)
	}, func(o *netobj.VXLANPeer) any { return &v1.VxlanPeer{PeerIP: o.Peer.String()} })
	row.Metadata = func(v store.View, key string) map[string]any {
		o, _ := a.Store.Peers.Get(v, key)
		return map[string]any{"vxlanID": o.ID}
	}
	return row
}

func showRoute(o *netobj.Route) any {
	r := &v1.Route{DestinationIPNet: o.Destination.String(), Gateway: o.Gateway.String()}
	if o.Protocol == netobj.ProtocolStatic {
		r.Protocol = "static"
	}
	return r
}
