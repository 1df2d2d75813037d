package network

import (
	"net/http"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/bgp"
)

// sessions returns a function that adds current sessions to neighbors.
func (a *API) sessions() func(object, body any) {
	known := map[string]bgp.Session{}
	for _, s := range a.BGP() {
		known[s.Neighbor] = s
	}
	now := time.Now()
	return func(object, body any) {
		n, out := object.(bgp.Neighbor), body.(*v1.BgpNeighbor)
		s, there := known[n.Key()]
		if !there {
			return
		}
		out.State, out.Updowntime, out.Since = s.State, s.Lasted(now), s.Since
		out.LastError, out.Flaps, out.BfdState = s.LastError, s.Flaps, s.BFD
		out.PrefixesSent, out.PrefixesReceived = s.Sent, s.Received
	}
}

// allSets is the existing loxilb's word for all sets of a type.
const allSets = "all"

// GetBgpDefinedSet replies with one set, or with each set of a type.
func (a *API) GetBgpDefinedSet(w http.ResponseWriter, r *http.Request, definesetType, typeName string) {
	kind, err := bgp.ParseSetType(definesetType)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	words := kinds.BGPSet()
	out := rest.NewList(w, words.List)
	for set := range a.Store.BGPSets.All(a.Store.Snapshot()) {
		if set.Type != kind || typeName != allSets && set.Name != typeName {
			continue
		}
		if r.Context().Err() != nil || !out.Item(words.Show(set)) {
			return
		}
	}
	out.End()
}

// CreateBgpDefinedSetOfType creates or changes a set whose type is in the path.
func (a *API) CreateBgpDefinedSetOfType(w http.ResponseWriter, r *http.Request, definesetType string) {
	a.Objects.CreateOf(kinds.BGPSetName, w, r, func(body any) error {
		set := body.(*v1.BgpDefinedSet)
		if set.DefinedType != "" && !strings.EqualFold(set.DefinedType, definesetType) {
			return rest.RefuseField(http.StatusBadRequest, bgp.FieldSetType, set.DefinedType, "is not the type in the path", definesetType)
		}
		set.DefinedType = definesetType
		return nil
	})
}

// RemoveBgpPolicies stops applying policies: the named ones, or all.
func (a *API) RemoveBgpPolicies(w http.ResponseWriter, r *http.Request) {
	kind := kinds.BGPApplication()
	named, p := rest.DecodeLenient(a.Reader, w, r, func(data []byte) (*v1.BgpPolicyApplication, *rest.Problem) {
		return rest.Unmarshal[v1.BgpPolicyApplication](data)
	})
	if p != nil {
		p.Write(w)
		return
	}
	from, err := kind.API.Read(named)
	if err != nil {
		rest.BadRequest(err).Write(w)
		return
	}
	a.Objects.Commit(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Applications, from.Key()); err != nil {
			return err
		}
		var notes rest.Warnings
		defer func() { notes.Write(w) }()
		stored, there := a.Store.Applications.Get(tx, from.Key())
		left := stored.Without(from.Policies)
		if !there || len(from.Policies) == 0 || len(left.Policies) == 0 {
			return objects.DeleteObject(tx, a.Store.Applications.ID(from.Key()), &notes)
		}
		return a.Store.Applications.Put(tx, left)
	})
}
