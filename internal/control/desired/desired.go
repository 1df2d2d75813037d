// Package desired is the state that users want: a table for each registered kind of objects, and
// queries across kinds.
package desired

import (
	"log/slog"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/policy"
)

// State is the desired state: the store, and the tables of its kinds.
type State struct {
	*store.Store
	Services  *Services
	Endpoints store.Table[lb.EndpointProbe]
	Drains    *Drains
	Policers  store.Table[policy.Policer]
	Mirrors   store.Table[policy.Mirror]
	Addresses store.Table[netobj.Address]
	Routes    store.Table[netobj.Route]
	Neighbors store.Table[netobj.Neighbor]
	Rules     store.Table[policy.Rule]
	FDBs      store.Table[netobj.FDB]
	VLANs     store.Table[netobj.VLAN]
	Members   store.Table[netobj.VLANMember] // of VLANs
	VXLANs    store.Table[netobj.VXLAN]
	Peers     store.Table[netobj.VXLANPeer]
	Instances *Instances

	Speakers     store.Table[bgp.Speaker] // of BGP: at most one
	BGPNeighbors store.Table[bgp.Neighbor]
	BGPSets      store.Table[bgp.DefinedSet]
	BGPPolicies  store.Table[bgp.Policy]
	Applications store.Table[bgp.Application]   // of policies
	BFD          store.Table[netobj.BFDSession] // with other nodes
	Sessions     store.Table[lb.Session]        // of mobile users
	SessionFlows store.Table[lb.SessionFlow]    // their classifiers
	ClusterNodes store.Table[lb.ClusterNode]    // in addition to those of --cluster

	Maintenance *Maintenance

	tables  []store.AnyTable
	objects []Objects
}

// Objects returns the objects of each kind.
func (s *State) Objects() []Objects { return s.objects }

// Admission refuses a commit if the data path could not hold the resulting services (with
// store.ErrLimit), or could not resolve them. It is called for every commit, in sequence.
type Admission func(before, after ServicesAt, changed []lb.Key) error

// Option is an option of Open.
type Option func(*options)

type options struct {
	admit  Admission
	origin string
}

// WithOrigin identifies where this process runs: a boot of the machine, and a network namespace.
// Roles that were assigned elsewhere are reset (lb.Instance.AtOrigin).
func WithOrigin(origin string) Option { return func(o *options) { o.origin = origin } }

// WithAdmission adds a check of every commit, after the kinds' own checks.
func WithAdmission(admit Admission) Option { return func(o *options) { o.admit = admit } }

// Open reads the desired state in directory dir, as store.Open does.
func Open(dir string, log *slog.Logger, opts ...Option) (*State, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	s := &State{Services: newServices(o.admit)}
	addTable(s, kinds.Service(), s.Services.Table)
	s.Endpoints = add(s, kinds.Endpoint())
	s.Drains = &Drains{add(s, kinds.Drain())}
	s.Policers = add(s, kinds.Policer())
	s.Mirrors = add(s, kinds.Mirror())
	s.Rules = add(s, kinds.Rule())
	s.Maintenance = &Maintenance{add(s, kinds.Maintenance())}
	s.Instances = &Instances{add(s, kinds.Instance()), o.origin, s.Maintenance}
	s.Addresses = add(s, kinds.Address())
	s.Routes = add(s, kinds.Route())
	s.Neighbors = add(s, kinds.Neighbor())
	s.FDBs = add(s, kinds.FDB())
	s.VLANs = add(s, kinds.VLAN())
	s.Members = add(s, kinds.VLANMember())
	s.VXLANs = add(s, kinds.VXLAN())
	s.Peers = add(s, kinds.VXLANPeer())
	s.Speakers = add(s, kinds.BGPSpeaker())
	s.BGPNeighbors = add(s, kinds.BGPNeighbor())
	s.BGPSets = addChecked(s, kinds.BGPSet(), s.checkSets)
	s.BGPPolicies = addChecked(s, kinds.BGPPolicy(), s.checkPolicies)
	s.Applications = add(s, kinds.BGPApplication())
	s.BFD = add(s, kinds.BFD())
	s.ClusterNodes = add(s, kinds.ClusterNode())
	s.Sessions, s.SessionFlows = add(s, kinds.Session()), add(s, kinds.SessionFlow())
	var err error
	s.Store, err = store.Open(dir, log, s.tables...)
	if err != nil {
		return nil, err
	}
	return s, nil
}
