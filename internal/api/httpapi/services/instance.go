package services

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// SetInstanceState records the role of this node for the services of an instance. Repeating a role
// succeeds: the sender repeats it after each start of either side. A role whose sender has given up
// is refused: while this process was stopped, another node may have become MASTER.
func (a *API) SetInstanceState(w http.ResponseWriter, r *http.Request) {
	one, p := rest.DecodeLenient(a.Reader, w, r, decodeInstance)
	if p != nil {
		p.Write(w)
		return
	}
	if transport.IsSenderGone(r.Context()) {
		rest.Refuse(http.StatusRequestTimeout,
			"the role is not set: its sender has closed the connection without waiting for the answer").Write(w)
		return
	}
	a.Objects.Commit(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Instances, one.Key()); err != nil {
			return err
		}
		if one.Role != lb.RoleUnknown || one.VIP.IsValid() {
			return a.Store.Instances.Put(tx, one)
		}
		if _, there := a.Store.Instances.Get(tx, one.Key()); !there {
			return nil
		}
		return tx.Delete(a.Store.Instances.ID(one.Key()))
	})
}

// warnNotOwned warns if this node does not answer for the VIP of a service because of its role.
// Users who create a service on one node often do not know that a controller assigns roles of the
// default instance. Controllers know the roles, so their services get no warning. With a shared
// store, the MASTER has the service, too.
func (a *API) warnNotOwned(s *lb.Service, roles map[string]lb.Instance, notes *rest.Warnings) {
	if a.Store.SharedKind(kinds.ServiceName) {
		return
	}
	instance := s.Instance()
	if role := roles[instance].Role; !s.Managed && !s.VIP.IsUnspecified() && !role.Owns() {
		notes.Add("this node is %s of instance %s and does not answer for VIP %s: create the service on the MASTER too, or name it NAME:INSTANCE with another instance",
			role, instance, s.VIP)
	}
}

func decodeInstance(data []byte) (one lb.Instance, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.InstanceState](data)
	if p != nil {
		return one, p
	}
	one.Name = cmp.Or(body.Instance, lb.DefaultInstance)
	var err error
	if one.Role, err = lb.ParseRole(body.State); err != nil {
		return one, rest.BadRequest(err)
	}
	if body.Vip != "" {
		if one.VIP, err = lb.ParseAddr(lb.FieldInstanceVIP, body.Vip); err != nil {
			return one, rest.BadRequest(err)
		}
		if one.VIP.IsUnspecified() {
			one.VIP = lb.Instance{}.VIP
		}
	}
	if one.Lease, err = lb.LeaseOf(body.LeaseSeconds); err != nil {
		return one, rest.BadRequest(err)
	}
	if err := one.Validate(); err != nil {
		return one, rest.BadRequest(err)
	}
	return one, nil
}

// GetInstanceStates replies with the roles of all instances, including the default one.
func (a *API) GetInstanceStates(w http.ResponseWriter, r *http.Request) {
	out := rest.NewList(w, "Attr")
	for _, state := range a.InstanceStates() {
		if r.Context().Err() != nil || !out.Item(state) {
			return
		}
	}
	out.End()
}

// InstanceStates returns the roles of this node, including that of the default instance.
func (a *API) InstanceStates() []v1.InstanceState {
	here := a.Store.Instances.OfThisNode(a.Store.Snapshot())
	if _, there := here[lb.DefaultInstance]; !there {
		here[lb.DefaultInstance] = lb.Instance{Name: lb.DefaultInstance, Role: lb.RoleUnknown}
	}
	list := make([]v1.InstanceState, 0, len(here))
	for _, key := range slices.Sorted(maps.Keys(here)) {
		one := here[key]
		state := v1.InstanceState{Instance: one.Name, State: string(one.Role), Vip: "0.0.0.0", LeaseSeconds: int(one.Lease / time.Second)}
		if one.VIP.IsValid() {
			state.Vip = one.VIP.String()
		}
		list = append(list, state)
	}
	return list
}
