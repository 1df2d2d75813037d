package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
)

// fakeSpeaker records its configuration.
type fakeSpeaker struct {
	mu        sync.Mutex
	speaker   bgp.Speaker
	neighbors map[string]bgp.Neighbor
	policies  string
	stops     []string

	onSetPolicies func() // called by SetPolicies unless nil
}

func (f *fakeSpeaker) Start(_ context.Context, g bgp.Speaker) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.speaker = g
	return nil
}

func (f *fakeSpeaker) Stop(_ context.Context, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.speaker, f.stops = bgp.Speaker{}, append(f.stops, reason)
	return nil
}

func (f *fakeSpeaker) SetNeighbor(_ context.Context, n bgp.Neighbor) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.neighbors[n.Key()] = n
	return nil
}

func (f *fakeSpeaker) DeleteNeighbor(_ context.Context, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.neighbors, key)
	return nil
}

func (f *fakeSpeaker) SetPolicies(_ context.Context, sets []bgp.DefinedSet, policies []bgp.Policy, apps []bgp.Application) error {
	if f.onSetPolicies != nil {
		f.onSetPolicies()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policies = ""
	for _, s := range sets {
		f.policies += " " + s.Key()
	}
	for _, p := range policies {
		f.policies += " " + p.Name
		for i := range p.Statements {
			f.policies += "+" + p.Statements[i].Conditions.Prefix.Set
		}
	}
	for _, a := range apps {
		f.policies += " " + a.Key()
		for _, name := range a.Policies {
			f.policies += "+" + name
		}
		if a.Reject {
			f.policies += "!"
		}
	}
	return nil
}

func (f *fakeSpeaker) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.speaker.ASN, " ", len(f.neighbors), f.policies)
}

// objectRig is a store, with loops of some kinds.
type objectRig struct {
	*desired.State
	t        *testing.T
	statuses *status.Table
	stop     func()
}

func newBGPRig(t *testing.T, speaker BGPSpeaker) *objectRig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	state, err := desired.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	r := &objectRig{State: state, t: t, statuses: status.NewTable()}
	r.run(NewBGP(state, speaker, Observers{Statuses: r.statuses, Events: event.NewHub(), Log: log}).Run)
	return r
}

// run runs loops until the test ends, or until stop.
func (r *objectRig) run(loops func(context.Context)) { r.stop = runUntilEnd(r.t, loops) }

func (r *objectRig) commit(edit func(tx *store.Tx) error) {
	r.t.Helper()
	if _, _, err := r.CommitBy(store.CommitOptions{Owner: "test"}, edit); err != nil {
		r.t.Fatal(err)
	}
}

// want waits until the status of an object contains problem; "" means applied, "none" no status.
func (r *objectRig) want(kind, key, problem string) {
	r.t.Helper()
	await.NoError(r.t, 10*time.Second, func() error {
		s, known := r.statuses.Get(status.ID{Kind: kind, Key: key})
		got := "none"
		if known {
			got = ""
			if s.Err != nil {
				got = s.Err.Error()
			} else if s.State() != status.Applied {
				got = string(s.State())
			}
		}
		if problem == "" && got != "" || !strings.Contains(got, problem) {
			return fmt.Errorf("%s %s: %q, want %q", kind, key, got, problem)
		}
		return nil
	})
}

// TestBGP checks that the speaker gets the desired objects, that policies wait for their sets and
// applications for their policies, and that the end of the process sends neighbors no reason.
func TestBGP(t *testing.T) {
	t.Parallel()
	f := &fakeSpeaker{neighbors: map[string]bgp.Neighbor{}}
	r := newBGPRig(t, f)
	r.commit(func(tx *store.Tx) error {
		if err := r.Speakers.Put(tx, bgp.Speaker{ASN: 65000}); err != nil {
			return err
		}
		return r.BGPNeighbors.Put(tx, bgp.Neighbor{Addr: netip.MustParseAddr("10.0.0.2"), ASN: 65001})
	})
	r.want(kinds.BGPSpeakerName, bgp.SpeakerKey, "")
	r.want(kinds.BGPNeighborName, "10.0.0.2", "")
	r.commit(func(tx *store.Tx) error {
		return r.Applications.Put(tx, bgp.Application{Neighbor: bgp.AllNeighbors, Policies: []string{"low"}})
	})
	r.want(kinds.BGPApplicationName, "global/export", "policy low does not exist")
	r.commit(func(tx *store.Tx) error {
		return r.BGPPolicies.Put(tx, bgp.Policy{Name: "low", Statements: []bgp.Statement{{Name: "s", Conditions: bgp.Conditions{Prefix: bgp.SetMatch{Set: "vips"}}}}})
	})
	r.want(kinds.BGPPolicyName, "low", "set prefix/vips does not exist")
	r.want(kinds.BGPApplicationName, "global/export", "policy low: set prefix/vips does not exist")
	if got := f.String(); got != "65000 1" {
		t.Errorf(`got %v, want "65000 1"`, got)
	}
	r.commit(func(tx *store.Tx) error {
		return r.BGPSets.Put(tx, bgp.DefinedSet{Type: bgp.PrefixSet, Name: "vips", Prefixes: []bgp.PrefixRule{{Prefix: "20.20.20.0/24"}}})
	})
	r.want(kinds.BGPSetName, "prefix/vips", "")
	r.want(kinds.BGPPolicyName, "low", "")
	r.want(kinds.BGPApplicationName, "global/export", "")
	if got := f.String(); got != "65000 1 prefix/vips low+vips global/export+low" {
		t.Errorf(`got %v, want "65000 1 prefix/vips low+vips global/export+low"`, got)
	}
	r.commit(func(tx *store.Tx) error {
		if err := r.Speakers.Delete(tx, bgp.SpeakerKey); err != nil {
			return err
		}
		return r.BGPNeighbors.Delete(tx, "10.0.0.2")
	})
	r.want(kinds.BGPSpeakerName, bgp.SpeakerKey, "none")
	r.want(kinds.BGPNeighborName, "10.0.0.2", "none")
	r.stop()
	if got := f.String(); !strings.HasPrefix(got, "0 0") || strings.Join(f.stops, ", ") != "BGP is switched off, " {
		t.Errorf(`got %s, %q, want got begins with "0 0", f.stops == "BGP is switched off, "`,
			got, f.stops)
	}
}

// TestMissingPolicies checks that a filter stays in effect while its new version refers to missing
// objects, and that an application that rejects other routes rejects all without its policies.
func TestMissingPolicies(t *testing.T) {
	t.Parallel()
	f := &fakeSpeaker{neighbors: map[string]bgp.Neighbor{}}
	r := newBGPRig(t, f)
	const policy, app = "low", "10.0.0.2/export"
	put := func(reject bool, policies ...string) {
		t.Helper()
		r.commit(func(tx *store.Tx) error {
			return r.Applications.Put(tx, bgp.Application{Neighbor: "10.0.0.2", Policies: policies, Reject: reject})
		})
	}
	define := func(set string) {
		t.Helper()
		r.commit(func(tx *store.Tx) error {
			s := bgp.Statement{Name: "s", Conditions: bgp.Conditions{Prefix: bgp.SetMatch{Set: set}}}
			return r.BGPPolicies.Put(tx, bgp.Policy{Name: policy, Statements: []bgp.Statement{s}})
		})
	}
	check := func(kind, key, problem, want string) {
		t.Helper()
		r.want(kind, key, problem)
		if got := f.String(); got != "0 0"+want {
			t.Errorf("%s: got %q, want %q", problem, got, "0 0"+want)
		}
	}
	put(true, policy)
	check(kinds.BGPApplicationName, app, "policy low does not exist", " 10.0.0.2/export!")
	r.commit(func(tx *store.Tx) error {
		return r.BGPSets.Put(tx, bgp.DefinedSet{Type: bgp.PrefixSet, Name: "vips", Prefixes: []bgp.PrefixRule{{Prefix: "20.20.20.0/24"}}})
	})
	define("vips")
	const all = " prefix/vips low+vips 10.0.0.2/export+low!"
	check(kinds.BGPApplicationName, app, "", all)
	define("vlps")
	check(kinds.BGPApplicationName, app, "policy low: set prefix/vlps does not exist", all)
	put(false, policy, "hlgh")
	check(kinds.BGPApplicationName, app, "set prefix/vlps does not exist", all)
	define("vips")
	check(kinds.BGPPolicyName, policy, "", all)
	check(kinds.BGPApplicationName, app, "policy hlgh does not exist", all)
	put(false, policy)
	check(kinds.BGPApplicationName, app, "", " prefix/vips low+vips 10.0.0.2/export+low")
	r.commit(func(tx *store.Tx) error {
		if err := r.Applications.Delete(tx, app); err != nil {
			return err
		}
		return r.BGPPolicies.Delete(tx, policy)
	})
	check(kinds.BGPApplicationName, app, "none", " prefix/vips")
	put(false, policy)
	check(kinds.BGPApplicationName, app, "policy low does not exist", " prefix/vips")
}

// TestPoliciesBeforeNeighbors checks that a neighbor is set after the policies of the same
// snapshot, so its session does not begin without them.
func TestPoliciesBeforeNeighbors(t *testing.T) {
	t.Parallel()
	state, err := desired.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close() //nolint:errcheck // the test is over
	_, _, err = state.CommitBy(store.CommitOptions{Owner: "test"}, func(tx *store.Tx) error {
		if err := state.Applications.Put(tx, bgp.Application{Neighbor: bgp.AllNeighbors, Reject: true}); err != nil {
			return err
		}
		return state.BGPNeighbors.Put(tx, bgp.Neighbor{Addr: netip.MustParseAddr("10.0.0.2"), ASN: 65001})
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSpeaker{neighbors: map[string]bgp.Neighbor{}}
	b := NewBGP(state, f, Observers{Statuses: status.NewTable(), Events: event.NewHub(), Log: slog.New(slog.DiscardHandler)})
	b.applyNeighbors(t.Context(), []string{"10.0.0.2"})
	if got := f.String(); got != "0 1 global/export!" {
		t.Errorf(`got %v, want "0 1 global/export!"`, got)
	}
}

// TestPolicyChangesMeanwhile checks that a set that changes while policies are passed to the
// speaker does not count as applied in the version that the speaker has not received.
func TestPolicyChangesMeanwhile(t *testing.T) {
	t.Parallel()
	state, err := desired.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close() //nolint:errcheck // the test is over
	put := func(prefix string) uint64 {
		revision, _, err := state.CommitBy(store.CommitOptions{Owner: "test"}, func(tx *store.Tx) error {
			return state.BGPSets.Put(tx, bgp.DefinedSet{Type: bgp.PrefixSet, Name: "vips", Prefixes: []bgp.PrefixRule{{Prefix: prefix}}})
		})
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	f := &fakeSpeaker{neighbors: map[string]bgp.Neighbor{}}
	b := NewBGP(state, f, Observers{Statuses: status.NewTable(), Events: event.NewHub(), Log: slog.New(slog.DiscardHandler)})
	passed := put("20.20.20.0/24")
	f.onSetPolicies = func() { put("20.20.30.0/24") }
	if out := b.applySets(t.Context(), []string{"prefix/vips"}); len(out) != 1 || out[0].Err != nil || out[0].Version != passed {
		t.Errorf("got %+v, want version %d without an error", out, passed)
	}
}

// TestBGPOff checks that without a speaker statuses say that BGP is off, and that objects can be
// deleted.
func TestBGPOff(t *testing.T) {
	t.Parallel()
	r := newBGPRig(t, nil)
	r.commit(func(tx *store.Tx) error {
		return r.BGPNeighbors.Put(tx, bgp.Neighbor{Interface: "eth0", ASN: 65001})
	})
	r.want(kinds.BGPNeighborName, "eth0", "BGP is off: start loxilb with --bgp")
	r.commit(func(tx *store.Tx) error { return r.BGPNeighbors.Delete(tx, "eth0") })
	r.want(kinds.BGPNeighborName, "eth0", "none")
}
