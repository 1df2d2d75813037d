// Package desired is the state that users want: the kinds of objects, one file for each. To add
// one, write its file, with a function that makes its store.Kind, and give its table to Open.
package desired

import (
	"log/slog"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

// State is the desired state: the store, and the tables of its kinds.
type State struct {
	*store.Store
	Services  *Services
	Endpoints *Endpoints
	Drains    *Drains
	Policers  *Policers
	Mirrors   *Mirrors
	Addresses *store.Table[netobj.Address]
	Routes    *store.Table[netobj.Route]
	Neighbors *store.Table[netobj.Neighbor]
	Rules     *Rules
	FDBs      *store.Table[netobj.FDB]
	VLANs     *store.Table[netobj.VLAN]
	Members   *store.Table[netobj.VLANMember] // of VLANs
	VXLANs    *store.Table[netobj.VXLAN]
	Peers     *store.Table[netobj.VXLANPeer]
	Instances *Instances
}

// Admission refuses a commit if the data path could not hold the resulting services. An error for
// lack of room is store.ErrLimit. It is called for each commit, one after the other, whatever the
// commit changes.
type Admission func(before, after ServicesAt, changed []lb.Key) error

// Option is an option of Open.
type Option func(*options)

type options struct {
	admit Admission
	place string
}

// At sets the place of this process: a boot of the machine, and a network namespace. Roles that
// were assigned elsewhere are reset (lb.Instance.At).
func At(place string) Option { return func(o *options) { o.place = place } }

// Admit adds a check of every commit, after the kinds' own checks.
func Admit(admit Admission) Option { return func(o *options) { o.admit = admit } }

// Open reads the desired state in directory dir, as store.Open does.
func Open(dir string, log *slog.Logger, opts ...Option) (*State, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	s := &State{
		Services: newServices(o.admit), Endpoints: newEndpoints(), Drains: newDrains(), Policers: newPolicers(), Mirrors: newMirrors(), Rules: newRules(), Instances: newInstances(o.place),
		Addresses: newNetObjects[netobj.Address](netobj.AddressKind),
		Routes:    newNetObjects[netobj.Route](netobj.RouteKind),
		Neighbors: newNetObjects[netobj.Neighbor](netobj.NeighborKind),
		FDBs:      newNetObjects[netobj.FDB](netobj.FDBKind),
		VLANs:     newNetObjects[netobj.VLAN](netobj.VLANKind),
		Members:   newNetObjects[netobj.VLANMember](netobj.VLANMemberKind),
		VXLANs:    newNetObjects[netobj.VXLAN](netobj.VXLANKind),
		Peers:     newNetObjects[netobj.VXLANPeer](netobj.VXLANPeerKind),
	}
	var err error
	s.Store, err = store.Open(dir, log, s.Services.Table, s.Endpoints.Table, s.Drains.Table, s.Policers.Table, s.Mirrors.Table, s.Rules.Table, s.Instances.Table,
		s.Addresses, s.Routes, s.Neighbors, s.FDBs, s.VLANs, s.Members, s.VXLANs, s.Peers)
	if err != nil {
		return nil, err
	}
	return s, nil
}
