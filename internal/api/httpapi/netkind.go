package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/manifest"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb/netobj"
)

// lookForDevice is how often it is looked whether an interface has come.
const lookForDevice = 50 * time.Millisecond

// netObjects is the row of a kind of the kernel's network. What the kernel has already, by somebody
// else, is left to that.
func netObjects[T netobj.Object[T]](a *API, name string, table *store.Table[T], k func() netKind[T], read func(o *v1.Object) (T, *rest.Problem), show func(*T) any) objectKind {
	row := objectsOf(name, table, func(o *v1.Object, _ bool) (T, *rest.Problem) { return read(o) }, show, rest.BadRequest)
	row.kernel = true
	row.outside = func(made map[string]bool, list []any) func(w *wanted) (there bool, p *rest.Problem) {
		kind := k()
		now := a.Store.Snapshot()
		var others []T // that the store lacks
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
		return func(w *wanted) (bool, *rest.Problem) {
			o, ok := w.value.(T)
			if _, stored := table.Get(now, w.key); stored || !ok {
				return false, nil
			}
			if err != nil {
				return false, kernelProblem(err)
			}
			missing := slices.DeleteFunc(o.Needs(), func(dev string) bool { return made[dev] })
			if p := a.needsDevices(missing); p != nil {
				return false, p
			}
			return kind.metBy(o, have[w.key])
		}
	}
	return row
}

// networkObjects are the rows of the kinds of the kernel's network.
func (a *API) networkObjects() []objectKind {
	return []objectKind{
		netObjects(a, manifest.IPaddress, a.Store.Addresses, a.addresses, specOf(func(s *v1.DeviceAddress) (netobj.Address, error) {
			return netobj.ParseAddress(s.Dev, s.IpAddress)
		}), func(o *netobj.Address) any { return &v1.DeviceAddress{Dev: o.Dev, IpAddress: o.Prefix.String()} }),
		netObjects(a, manifest.Route, a.Store.Routes, a.routes, specOf(func(s *v1.Route) (netobj.Route, error) {
			return netobj.ParseRoute(s.DestinationIPNet, s.Gateway, s.Protocol)
		}), showRoute),
		netObjects(a, manifest.Neighbor, a.Store.Neighbors, a.neighbors, specOf(func(s *v1.Neighbor) (netobj.Neighbor, error) {
			return netobj.ParseNeighbor(s.IpAddress, s.Dev, s.MacAddress)
		}), func(o *netobj.Neighbor) any {
			return &v1.Neighbor{IpAddress: o.Addr.String(), Dev: o.Dev, MacAddress: o.MAC.String()}
		}),
		netObjects(a, manifest.FDB, a.Store.FDBs, a.fdbs, specOf(func(s *v1.Fdb) (netobj.FDB, error) {
			return netobj.ParseFDB(s.MacAddress, s.Dev)
		}), func(o *netobj.FDB) any { return &v1.Fdb{Dev: o.Dev, MacAddress: o.MAC.String()} }),
		netObjects(a, manifest.Vlan, a.Store.VLANs, a.vlans, readVLAN, func(o *netobj.VLAN) any { return &v1.Vlan{Vid: o.ID} }),
		netObjects(a, manifest.Vxlan, a.Store.VXLANs, a.vxlans, specOf(func(s *v1.Vxlan) (netobj.VXLAN, error) {
			o := netobj.VXLAN{ID: s.VxlanID, Dev: s.EpIntf}
			return o, o.Validate()
		}), func(o *netobj.VXLAN) any { return &v1.Vxlan{VxlanID: o.ID, EpIntf: o.Dev} }),
		a.vlanMemberObjects(),
		a.vxlanPeerObjects(),
	}
}

// readVLAN reads a VLAN of a list: its number may be in the metadata, without a spec.
func readVLAN(o *v1.Object) (vlan netobj.VLAN, p *rest.Problem) {
	named := *o
	if len(o.Spec) == 0 || string(o.Spec) == "{}" {
		vid, p := numberIn(o, "vid")
		if p != nil {
			return vlan, p
		}
		named.Spec = json.RawMessage(`{"vid":` + vid + `}`)
	}
	return specOf(func(s *v1.Vlan) (netobj.VLAN, error) {
		o := netobj.VLAN{ID: s.Vid}
		return o, o.Validate()
	})(&named)
}

// vlanMemberObjects is the row of members of VLANs: metadata say of which.
func (a *API) vlanMemberObjects() objectKind {
	row := netObjects(a, manifest.VlanMember, a.Store.Members, a.vlanMembers, func(o *v1.Object) (m netobj.VLANMember, p *rest.Problem) {
		vid, p := numberIn(o, "vid")
		if p != nil {
			return m, p
		}
		return specOf(func(s *v1.VlanMember) (netobj.VLANMember, error) {
			return netobj.ParseVLANMember(vid, s.Dev, s.Tagged)
		})(o)
	}, func(o *netobj.VLANMember) any { return &v1.VlanMember{Dev: o.Dev, Tagged: o.Tagged} })
	row.metadata = func(v store.View, key string) map[string]any {
		o, _ := a.Store.Members.Get(v, key)
		return map[string]any{"vid": o.VLAN}
	}
	return row
}

// vxlanPeerObjects is the row of peers of tunnels: metadata say of which.
func (a *API) vxlanPeerObjects() objectKind {
	row := netObjects(a, manifest.VxlanPeer, a.Store.Peers, a.vxlanPeers, func(o *v1.Object) (peer netobj.VXLANPeer, p *rest.Problem) {
		id, p := numberIn(o, "vxlanID")
		if p != nil {
			return peer, p
		}
		return specOf(func(s *v1.VxlanPeer) (netobj.VXLANPeer, error) { return netobj.ParseVXLANPeer(id, s.PeerIP) })(o)
	}, func(o *netobj.VXLANPeer) any { return &v1.VxlanPeer{PeerIP: o.Peer.String()} })
	row.metadata = func(v store.View, key string) map[string]any {
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

// numberIn is a number of the metadata.
func numberIn(o *v1.Object, name string) (string, *rest.Problem) {
	metadata, p := metadataOf(o)
	if p != nil {
		return "", p
	}
	n, ok := metadata[name].(float64)
	if !ok || n != float64(int32(n)) {
		return "", rest.RefuseField(http.StatusBadRequest, "metadata."+name, "", "is missing, or is no number", "")
	}
	return strconv.Itoa(int(n)), nil
}

func metadataOf(o *v1.Object) (metadata map[string]any, p *rest.Problem) {
	if len(o.Metadata) > 0 {
		if err := json.Unmarshal(o.Metadata, &metadata); err != nil {
			return nil, rest.RefuseField(http.StatusBadRequest, "metadata", "", "is no object", "")
		}
	}
	return metadata, nil
}

// devicesOf are the interfaces that objects of a list, or those that are stored, have made.
func (a *API) devicesOf(list []listed) map[string]bool {
	made := map[string]bool{}
	now := a.Store.Snapshot()
	for o := range a.Store.VLANs.All(now) {
		made[o.Device()] = true
	}
	for o := range a.Store.VXLANs.All(now) {
		made[o.Device()] = true
	}
	for i := range list {
		switch o := list[i].value.(type) {
		case netobj.VLAN:
			made[o.Device()] = true
		case netobj.VXLAN:
			made[o.Device()] = true
		}
	}
	return made
}

// specOf reads an object that its spec says.
func specOf[S, T any](parse func(*S) (T, error)) func(*v1.Object) (T, *rest.Problem) {
	return func(o *v1.Object) (value T, p *rest.Problem) {
		spec, p := rest.UnmarshalStrict[S](o.Spec)
		if p != nil {
			return value, p
		}
		value, err := parse(spec)
		if err != nil {
			return value, rest.BadRequest(err)
		}
		return value, nil
	}
}

// undoApply takes back a whole change of which the kernel refuses objects of its network, and
// answers why: a file that is refused has changed nothing. Nil: it was something else that failed,
// which is tried again.
func (a *API) undoApply(r *http.Request, t *transaction, revision uint64, p *rest.Problem) *rest.Problem {
	var all objectErrors
	var refused *unapplied
	if !errors.As(p, &refused) || revision == 0 {
		return nil
	}
	for _, f := range refused.failed.Failures {
		if k := a.kindOfID(store.ID(f.ID)); k != nil && k.kernel {
			index, named := t.named[store.ID(f.ID)]
			if !named {
				index = -1
			}
			all.add(index, kernelProblem(f.Err))
		}
	}
	if len(all.list) == 0 {
		return nil
	}
	by := store.By{Owner: owner, Author: author(r, fmt.Sprintf("undo of revision %d, which the kernel refused", revision))}
	var left []store.ID
	undone, changed, err := a.Store.CommitBy(by, func(tx *store.Tx) (err error) {
		left, err = tx.Undo(revision)
		return err
	})
	if err != nil {
		a.Log.Error("a change that the kernel refused could not be undone", "revision", revision, "error", err)
		return nil
	}
	recordChange(r, undone, changed)
	out := all.problem(len(t.named))
	if len(left) > 0 {
		out.Say(undoneButFor(left) + ": " + all.first())
	}
	return out
}

// undoneButFor says what of a change that was undone is still there.
func undoneButFor(left []store.ID) string {
	names := make([]string, 0, maxObjectsTold)
	for _, id := range left[:min(len(left), maxObjectsTold)] {
		names = append(names, id.String())
	}
	text := strings.Join(names, ", ")
	if more := len(left) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "the change was undone, but for what others have changed since (" + text + ")"
}

// waitForAll waits until everybody has what was changed. What needs an interface that comes with
// the change fails until it is there.
func (a *API) waitForAll(ctx context.Context, revision uint64, changed []store.ID) error {
	made := a.devicesOf(nil)
	for {
		err := a.Statuses.Wait(ctx, revision, statusIDs(changed))
		var failed *status.Error
		if !errors.As(err, &failed) || ctx.Err() != nil {
			return err
		}
		for _, f := range failed.Failures {
			var missing *netobj.NoDeviceError
			if !errors.As(f.Err, &missing) || !made[missing.Name] {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lookForDevice):
		}
	}
}
