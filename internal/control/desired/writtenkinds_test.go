package desired_test

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/internal/lb/policy"
)

// TestWrittenKinds checks the stored form of the other kinds, which later versions must read, too.
// The format of an object is the lowest that can express it: an older version ignores objects of
// newer formats.
func TestWrittenKinds(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s := open(t, dir)
	plain, err := policy.ParseRule("sourceIP:10.0.0.0/8 drop")
	if err != nil {
		t.Fatal(err)
	}
	recorded := plain
	recorded.Preference, recorded.Record = 7, true
	endpoint := netip.MustParseAddr("31.31.31.1")
	for _, edit := range []func(*store.Tx) error{
		func(tx *store.Tx) error { return s.Rules.Put(tx, plain) },
		func(tx *store.Tx) error { return s.Rules.Put(tx, recorded) },
		func(tx *store.Tx) error {
			return s.Mirrors.Put(tx, policy.Mirror{Name: "m", Port: "eth1", Attachment: policy.Attachment{To: policy.AttachPort, Name: "eth0"}})
		},
		func(tx *store.Tx) error { return s.Drains.Put(tx, lb.Drain{Addr: endpoint, Port: 80, Rate: 200}) },
		func(tx *store.Tx) error {
			return s.Endpoints.Put(tx, lb.EndpointProbe{Addr: endpoint, Probe: lb.Probe{Type: lb.ProbePing}})
		},
		func(tx *store.Tx) error {
			return s.Speakers.Put(tx, bgp.Speaker{ASN: 4200000000, RouterID: endpoint, GracefulRestart: 120 * time.Second})
		},
		func(tx *store.Tx) error {
			return s.BGPNeighbors.Put(tx, bgp.Neighbor{Addr: endpoint, ASN: 65001, Password: "secret", BFD: bgp.BFD{Interval: 100 * time.Millisecond}})
		},
		func(tx *store.Tx) error {
			return s.BGPSets.Put(tx, bgp.DefinedSet{Type: bgp.PrefixSet, Name: "vips", Prefixes: []bgp.PrefixRule{{Prefix: "20.20.20.0/24", Lengths: "32..32"}}})
		},
		func(tx *store.Tx) error {
			return s.BGPPolicies.Put(tx, bgp.Policy{Name: "low", Statements: []bgp.Statement{{
				Name: "vips", Conditions: bgp.Conditions{Prefix: bgp.SetMatch{Set: "vips"}}, Actions: bgp.Actions{Disposition: bgp.Accept, MED: "+50"},
			}}})
		},
		func(tx *store.Tx) error {
			return s.Applications.Put(tx, bgp.Application{Neighbor: bgp.AllNeighbors, Policies: []string{"low"}})
		},
	} {
		mustCommit(t, s, "rest", edit)
	}
	wantFile(t, dir, firstJournal, "kinds.jsonl")
}
