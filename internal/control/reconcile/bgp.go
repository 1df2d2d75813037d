package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/bgp"
)

// BGPSpeaker keeps sessions with neighbors. It accepts neighbors and policies before Start. It
// retries by itself what fails on this machine, such as listening on a port.
type BGPSpeaker interface {
	Start(context.Context, bgp.Speaker) error
	// Stop ends all sessions and sends neighbors the reason; "" means that this process
	// restarts.
	Stop(ctx context.Context, reason string) error
	SetNeighbor(context.Context, bgp.Neighbor) error
	DeleteNeighbor(ctx context.Context, key string) error
	SetPolicies(context.Context, []bgp.DefinedSet, []bgp.Policy, []bgp.Application) error
}

var errBGPOff = errors.New("BGP is off: start loxilb with --bgp, or delete the object")

// BGP applies BGP objects to the speaker. Each kind has a loop, since statuses belong to kinds. The
// three loops of policies share setPolicies, since gobgp checks sets, policies and their
// applications together.
type BGP struct {
	speaker      BGPSpeaker // nil: BGP is off
	speakers     *objectLoop[bgp.Speaker]
	neighbors    *objectLoop[bgp.Neighbor]
	sets         *objectLoop[bgp.DefinedSet]
	policies     *objectLoop[bgp.Policy]
	applications *objectLoop[bgp.Application]
	known        map[string]bool // neighbors of the speaker; only the loop of neighbors uses it

	mu   sync.Mutex // one call of SetPolicies at a time, in the order of snapshots
	last policySet  // that the speaker has
}

// NewBGP returns the loops. Without a speaker, BGP is off: objects are stored, and their statuses
// report that.
func NewBGP(s *desired.State, speaker BGPSpeaker, o Observers) *BGP {
	b := &BGP{speaker: speaker, known: map[string]bool{}}
	b.speakers = newObjectLoop(bgpWorker(b.applySpeaker), s, s.Speakers, o)
	b.neighbors = newObjectLoop(bgpWorker(b.applyNeighbors), s, s.BGPNeighbors, o)
	b.neighbors.applied = func() []string { return slices.Collect(maps.Keys(b.known)) }
	b.sets = newPolicyLoop(bgpWorker(b.applySets), s, s.BGPSets, o)
	b.policies = newPolicyLoop(bgpWorker(b.applyPolicies), s, s.BGPPolicies, o)
	b.applications = newPolicyLoop(bgpWorker(b.applyApplications), s, s.Applications, o)
	return b
}

// Run applies until ctx ends; then sessions end as for a restart.
func (b *BGP) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range []func(context.Context){b.speakers.Run, b.neighbors.Run, b.sets.Run, b.policies.Run, b.applications.Run} {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
	if b.speaker != nil {
		_ = b.speaker.Stop(context.WithoutCancel(ctx), "") // the process ends in any case
	}
}

type bgpWorker func(ctx context.Context, keys []string) []Outcome[string]

func (f bgpWorker) Apply(ctx context.Context, keys []string) []Outcome[string] { return f(ctx, keys) }

// offError returns the error of an object if BGP is off; nil if the object was deleted.
func (b *BGP) offError(exists bool) error {
	if b.speaker == nil && exists {
		return errBGPOff
	}
	return nil
}

func (b *BGP) applySpeaker(ctx context.Context, keys []string) []Outcome[string] {
	return b.speakers.applyEach(b.speakers.desired.Snapshot(), keys, func(g bgp.Speaker, exists bool, _ string) error {
		switch {
		case b.speaker == nil:
			return b.offError(exists)
		case exists:
			return b.speaker.Start(ctx, g)
		}
		return b.speaker.Stop(ctx, "BGP is switched off")
	})
}

// applyNeighbors applies policies first: a session that began without them would leak routes. The
// loops of policies report their errors.
func (b *BGP) applyNeighbors(ctx context.Context, keys []string) []Outcome[string] {
	snapshot, _ := b.setPolicies(ctx, b.neighbors.desired)
	return b.neighbors.applyEach(snapshot, keys, func(n bgp.Neighbor, exists bool, key string) error {
		switch {
		case b.speaker == nil:
			return b.offError(exists)
		case exists:
			b.known[key] = true
			return b.speaker.SetNeighbor(ctx, n)
		}
		delete(b.known, key)
		return b.speaker.DeleteNeighbor(ctx, key)
	})
}

func (b *BGP) applySets(ctx context.Context, keys []string) []Outcome[string] {
	snapshot, err := b.setPolicies(ctx, b.sets.desired)
	return b.sets.applyEach(snapshot, keys, func(_ bgp.DefinedSet, exists bool, _ string) error {
		return errors.Join(err, b.offError(exists))
	})
}

func (b *BGP) applyPolicies(ctx context.Context, keys []string) []Outcome[string] {
	snapshot, err := b.setPolicies(ctx, b.policies.desired)
	return b.policies.applyEach(snapshot, keys, func(p bgp.Policy, exists bool, _ string) error {
		return errors.Join(err, b.offError(exists), missingSet(b.policies.desired, snapshot, &p))
	})
}

func (b *BGP) applyApplications(ctx context.Context, keys []string) []Outcome[string] {
	snapshot, err := b.setPolicies(ctx, b.applications.desired)
	return b.applications.applyEach(snapshot, keys, func(a bgp.Application, exists bool, _ string) error {
		return errors.Join(err, b.offError(exists), missingPolicy(b.applications.desired, snapshot, &a))
	})
}

// setPolicies applies all policies whose sets exist, and all applications of these policies. It
// returns the snapshot that it applied.
func (b *BGP) setPolicies(ctx context.Context, s *desired.State) (snapshot *store.Snapshot, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	snapshot = s.Snapshot()
	if b.speaker == nil {
		return snapshot, nil
	}
	next := b.complete(s, snapshot)
	if err := b.speaker.SetPolicies(ctx, slices.Collect(s.BGPSets.All(snapshot)), next.policies, next.applications); err != nil {
		return snapshot, err
	}
	b.last = next
	return snapshot, nil
}

// policySet has policies, and where they are applied.
type policySet struct {
	policies     []bgp.Policy
	applications []bgp.Application
}

// complete returns the policies and applications without those that refer to missing objects. Their
// previous version stays in effect, if there is one: otherwise, a wrong name in a change would
// announce all routes that the policy rejects. An application without one that rejects other routes
// rejects all.
func (b *BGP) complete(s *desired.State, snapshot *store.Snapshot) (next policySet) {
	usable := map[string]bool{}
	for p := range s.BGPPolicies.All(snapshot) {
		if missingSet(s, snapshot, &p) != nil {
			i := slices.IndexFunc(b.last.policies, func(before bgp.Policy) bool { return before.Name == p.Name })
			if i < 0 || missingSet(s, snapshot, &b.last.policies[i]) != nil {
				continue
			}
			p = b.last.policies[i]
		}
		usable[p.Name] = true
		next.policies = append(next.policies, p)
	}
	isMissing := func(name string) bool { return !usable[name] }
	for a := range s.Applications.All(snapshot) {
		if slices.ContainsFunc(a.Policies, isMissing) {
			i := slices.IndexFunc(b.last.applications, func(before bgp.Application) bool { return before.Key() == a.Key() })
			switch {
			case i >= 0 && !slices.ContainsFunc(b.last.applications[i].Policies, isMissing):
				a = b.last.applications[i]
			case a.Reject:
				a.Policies = nil
			default:
				continue
			}
		}
		next.applications = append(next.applications, a)
	}
	return next
}

// missingSet returns an error if a policy refers to a set that does not exist.
func missingSet(s *desired.State, snapshot *store.Snapshot, p *bgp.Policy) error {
	for _, ref := range p.Sets() {
		if _, exists := s.BGPSets.Get(snapshot, ref.Key()); !exists {
			return fmt.Errorf("set %s does not exist: create it, or change the policy", ref.Key())
		}
	}
	return nil
}

// missingPolicy returns an error if a policy of an application is missing, or refers to a missing
// set. The application then has no effect, rather than that of its other policies: a part of a
// filter would let routes through.
func missingPolicy(s *desired.State, snapshot *store.Snapshot, a *bgp.Application) error {
	for _, name := range a.Policies {
		p, exists := s.BGPPolicies.Get(snapshot, name)
		if !exists {
			return fmt.Errorf("policy %s does not exist: create it, or delete it here", name)
		}
		if err := missingSet(s, snapshot, &p); err != nil {
			return fmt.Errorf("policy %s: %w", name, err)
		}
	}
	return nil
}

// newPolicyLoop returns the loop of a kind of policy objects. A change of one kind may affect all
// objects of the others.
func newPolicyLoop[T any](w Worker[string], s *desired.State, table store.Table[T], o Observers) *objectLoop[T] {
	l := newObjectLoop(w, s, table, o)
	l.affects = func(kind string) bool {
		return kind != l.kind && slices.Contains([]string{kinds.BGPSetName, kinds.BGPPolicyName, kinds.BGPApplicationName}, kind)
	}
	l.markAffected = func(snapshot *store.Snapshot) {
		for object := range table.All(snapshot) {
			l.Mark(table.Key(object))
		}
	}
	return l
}
