package balancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/kube/internal/translate"
)

const (
	master = "MASTER"
	backup = "BACKUP"

	undefined = "NOT_DEFINED" // a balancer without a role answers for VIPs

	electionInterval = time.Second
	settleTime       = time.Minute // how long a balancer answers before VIPs move to it: a move breaks connections

	// restartTime is how long the replacement of a daemon may take. A balancer whose daemon was
	// down for longer is no longer MASTER: its lease has ended when another one is elected.
	restartTime = 30 * time.Second
)

// Roles configures the election of the balancer that owns the VIPs of an instance.
type Roles struct {
	VIP       netip.Addr // source address that endpoints see with mode fullnat; the zero value: no election
	Instances int
	Excluded  []string // hosts or nodes that are never MASTER
	Spread    bool     // move instances, so balancers have equally many
}

// Enabled reports whether this controller elects MASTERs.
func (r Roles) Enabled() bool { return r.VIP.IsValid() }

// election is the state of the elections of MASTERs.
type election struct {
	masters          map[string]string    // URLs, by instance
	awaySince        map[string]time.Time // by URL of a MASTER that does not answer
	missedProbes     map[string]int       // consecutive ones of departed MASTERs, by URL
	onlyBackupsSince time.Time            // first election after a start that found only BACKUPs
}

func newElection() *election {
	return &election{masters: map[string]string{}, awaySince: map[string]time.Time{}}
}

// elect elects the MASTER of each instance until the context ends. A MASTER stays while it answers
// or may be restarting, unless Roles.Spread moves its instance.
func (f *Fleet) elect(ctx context.Context) {
	e := newElection()
	tick := time.NewTicker(electionInterval)
	defer tick.Stop()
	for {
		f.electOnce(ctx, e)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// electOnce elects MASTERs, and assigns the roles.
func (f *Fleet) electOnce(ctx context.Context, e *election) {
	all := f.list()
	e.probeDeparted(ctx, all)
	members := slices.DeleteFunc(slices.Clone(all), func(m *member) bool { return !m.answers() })
	candidates := slices.DeleteFunc(slices.Clone(members), f.isExcluded)
	if f.Roles.Spread {
		f.rebalance(candidates, e.masters)
	}
	states := statesOf(ctx, candidates, e.masters, f.Roles.Instances)
	slow := newSlowMembers()
	defer e.forgetDeparted(all)
	for i := range max(1, f.Roles.Instances) {
		instance := translate.Instance(f.Zone, i)
		if e.masters[instance] == "" && e.mayHaveMaster(all, members, candidates, states, instance) {
			continue
		}
		elected := e.choose(all, candidates, states, instance)
		if elected == "" {
			continue // the former MASTER continues, if it can
		}
		if e.masters[instance] != elected {
			f.Log.Info("balancer becomes MASTER", "balancer", elected, "instance", instance)
		}
		e.masters[instance] = elected
		f.mu.Lock()
		f.masters[instance] = elected
		f.mu.Unlock()
		// BACKUPs first, so two do not own a VIP for longer than necessary.
		for _, role := range []string{backup, master} {
			var assigned sync.WaitGroup
			for _, m := range members {
				if (m.URL == elected) == (role == master) && !slow.has(m) {
					assigned.Go(func() {
						if !f.assign(ctx, m, instance, role) {
							slow.add(m)
						}
					})
				}
			}
			assigned.Wait()
		}
	}
}

// isExcluded reports whether a balancer must not be MASTER.
func (f *Fleet) isExcluded(m *member) bool {
	u, err := url.Parse(m.URL)
	return err == nil && slices.Contains(f.Roles.Excluded, u.Hostname()) || m.Node != "" && slices.Contains(f.Roles.Excluded, m.Node)
}

// mayHaveMaster reports whether, after a start of this controller, a balancer whose role is not
// known yet may be MASTER of an instance.
func (e *election) mayHaveMaster(all, members, candidates []*member, states roleStates, instance string) bool {
	if slices.ContainsFunc(all, func(m *member) bool { return !m.isTried() }) {
		return true
	}
	return states.hasBackup(instance) &&
		(e.mayBeMaster(all, candidates, states) || hasReturned(all, members) || e.mayBeReplaced(all, states, instance))
}

// choose returns the URL of the MASTER: the present one; after a start of this controller, the
// balancer that reports this role; or else the balancer with the fewest instances.
func (e *election) choose(all, candidates []*member, states roleStates, instance string) string {
	present := e.masters[instance]
	if slices.ContainsFunc(candidates, func(m *member) bool { return m.URL == present }) {
		delete(e.awaySince, present)
		return present
	}
	if present != "" && e.mayReturn(present, all) {
		return present
	}
	if len(candidates) == 0 {
		return ""
	}
	if present == "" {
		for _, m := range candidates {
			if states[m.URL][instance] == master {
				return m.URL
			}
		}
	}
	least, _ := leastAndMost(candidates, e.masters)
	return least.URL
}

// mayReturn reports whether a MASTER that does not answer may be back soon: its node refuses
// connections or accepts them for a daemon that hangs, also after its pod was deleted. Meanwhile
// the node's kernel balances and answers for the VIPs, so a second MASTER would break connections.
func (e *election) mayReturn(url string, all []*member) bool {
	if e.missedProbes[url] >= missedPolls {
		return false
	}
	if i := slices.IndexFunc(all, func(m *member) bool { return m.URL == url }); i >= 0 {
		if all[i].answers() {
			return true // it has returned since this election began
		}
		if !all[i].isRestarting() {
			return false
		}
	}
	return e.isWithinRestart(url)
}

// isWithinRestart reports whether less time than restartTime has passed since an election first
// found that a balancer does not answer.
func (e *election) isWithinRestart(url string) bool {
	if e.awaySince[url].IsZero() {
		e.awaySince[url] = time.Now()
	}
	return time.Since(e.awaySince[url]) < restartTime
}

// forgetDeparted removes balancers from awaySince that are no longer listed, nor MASTER: nodes come
// and go for years.
func (e *election) forgetDeparted(all []*member) {
	counts := countInstances(e.masters)
	maps.DeleteFunc(e.awaySince, func(url string, _ time.Time) bool {
		return counts[url] == 0 && !slices.ContainsFunc(all, func(m *member) bool { return m.URL == url })
	})
}

// mayBeMaster reports whether a balancer that has not reported its roles may be MASTER: it may be
// restarting, or it did not answer just now although it answered its last poll. Its daemon may have
// ended in between, which the next poll shows.
func (e *election) mayBeMaster(all, candidates []*member, states roleStates) bool {
	return slices.ContainsFunc(all, func(m *member) bool { return m.isRestarting() && e.mayReturn(m.URL, all) }) ||
		slices.ContainsFunc(candidates, func(m *member) bool { return states[m.URL] == nil && e.isWithinRestart(m.URL) })
}

// roleStates has the roles that balancers report, by URL and instance.
type roleStates map[string]map[string]string

// statesOf requests the roles of balancers, if the MASTER of an instance is unknown.
func statesOf(ctx context.Context, members []*member, masters map[string]string, instances int) roleStates {
	out := roleStates{}
	if len(masters) >= max(1, instances) {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range members {
		all.Go(func() {
			states, err := m.Client.Instances(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[m.URL] = map[string]string{}
			for _, s := range states {
				if !m.isDefaultBackup(s.Instance) {
					out[m.URL][s.Instance] = s.State
				}
			}
		})
	}
	all.Wait()
	return out
}

// hasBackup reports whether a balancer is BACKUP of an instance: then another one is or was MASTER.
func (r roleStates) hasBackup(instance string) bool {
	for _, states := range r {
		if states[instance] == backup {
			return true
		}
	}
	return false
}

// rebalance moves one instance from the balancer with the most to the balancer with the fewest, if
// they differ by more than one. A new balancer gets its share in this way, one instance at a time.
func (f *Fleet) rebalance(candidates []*member, masters map[string]string) {
	settled := slices.DeleteFunc(slices.Clone(candidates), func(m *member) bool { return !m.answersFor(settleTime) })
	if len(settled) < 2 {
		return
	}
	least, most := leastAndMost(settled, masters)
	counts := countInstances(masters)
	if counts[most.URL]-counts[least.URL] < 2 {
		return
	}
	for _, instance := range slices.Sorted(maps.Keys(masters)) {
		if masters[instance] == most.URL {
			f.Log.Info("instance moves to a balancer with fewer", "instance", instance, "from", most.URL, "to", least.URL)
			masters[instance] = least.URL
			return
		}
	}
}

// leastAndMost returns the balancers with the fewest and the most instances; of equal ones the
// first.
func leastAndMost(candidates []*member, masters map[string]string) (least, most *member) {
	counts := countInstances(masters)
	compare := func(a, b *member) int { return cmp.Compare(counts[a.URL], counts[b.URL]) }
	return slices.MinFunc(candidates, compare), slices.MaxFunc(candidates, compare)
}

// countInstances counts the instances of each balancer, by URL.
func countInstances(masters map[string]string) map[string]int {
	counts := map[string]int{}
	for _, url := range masters {
		counts[url]++
	}
	return counts
}

// answersFor reports whether the balancer has answered all polls for a duration.
func (m *member) answersFor(d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reachable && time.Since(m.reachableSince) >= d
}

// isRestarting reports whether the balancer's node answers, but its daemon does not.
func (m *member) isRestarting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tried && !m.reachable && m.alive
}

// answers reports whether the balancer answered its last poll.
func (m *member) answers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reachable
}

// slowMembers is the set of balancers that did not take a role in this election. They get no other
// roles until the next one: an election must not wait for them once per instance.
type slowMembers struct {
	mu   sync.Mutex
	urls map[string]bool
}

func newSlowMembers() *slowMembers { return &slowMembers{urls: map[string]bool{}} }

func (s *slowMembers) add(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urls[m.URL] = true
}

func (s *slowMembers) has(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urls[m.URL]
}

// assign gives a balancer a role, unless it has that already, and reports whether it has it now.
func (f *Fleet) assign(ctx context.Context, m *member, instance, role string) bool {
	wanted := assignedRole{role, f.lease()}
	m.mu.Lock()
	present := m.roles[instance]
	m.mu.Unlock()
	if present == wanted {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	err := m.setRole(ctx, instance, wanted)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.rejectedRoles[instance] != role { // once, not with the election of each second
			f.Log.Error(err, "cannot set the role of a balancer", "balancer", m.URL, "instance", instance, "role", role)
		}
		m.rejectedRoles[instance] = role
		return false
	}
	delete(m.rejectedRoles, instance)
	m.roles[instance] = wanted
	delete(m.defaultBackup, instance)
	return true
}

// assignedRole is a role with its lease in seconds.
type assignedRole struct {
	role  string
	lease int
}

// lease returns the lease of roles in seconds: 0 (none) if no other balancer could take over.
func (f *Fleet) lease() int {
	if len(f.list()) < 2 {
		return 0
	}
	return int(restartTime / time.Second)
}

// setRole gives a balancer a role, without a lease if its version has no leases.
func (m *member) setRole(ctx context.Context, instance string, r assignedRole) error {
	state := v1.InstanceState{Instance: instance, State: r.role, Vip: m.fleet.Roles.VIP.String(), LeaseSeconds: r.lease}
	err := m.Client.Post(ctx, "/config/cistate", state)
	if status := (*StatusError)(nil); errors.As(err, &status) && status.Status == http.StatusBadRequest {
		state.LeaseSeconds = 0
		return m.Client.Post(ctx, "/config/cistate", state)
	}
	return err
}

// readRoles removes roles from m.roles that the balancer no longer has, so the next election sets
// them again: a lease has ended unnoticed, or another client has changed them.
func (m *member) readRoles(ctx context.Context) error {
	if !m.fleet.Roles.Enabled() {
		return nil
	}
	states, err := m.Client.Instances(ctx)
	if err != nil {
		return err
	}
	reported := map[string]string{}
	for _, s := range states {
		reported[s.Instance] = s.State
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.roles, func(instance string, r assignedRole) bool { return reported[instance] != r.role })
	return nil
}

// startAsBackup makes a balancer that answers again BACKUP of instances in which it has no role, or
// another balancer has become MASTER. It runs before services are sent, since a balancer without a
// role answers for their VIPs.
func (m *member) startAsBackup(ctx context.Context) error {
	roles := m.fleet.Roles
	if !roles.Enabled() {
		return nil
	}
	states, err := m.Client.Instances(ctx)
	if err != nil {
		return err
	}
	for i := range max(1, roles.Instances) {
		instance := translate.Instance(m.fleet.Zone, i)
		state := undefined
		for _, s := range states {
			if s.Instance == instance {
				state = s.State
			}
		}
		elected := m.fleet.master(instance)
		if overtaken := state == master && elected != "" && elected != m.URL; state != undefined && !overtaken {
			continue
		}
		if err := m.setRole(ctx, instance, assignedRole{backup, m.fleet.lease()}); err != nil {
			return fmt.Errorf("set the role of instance %s: %w", instance, err)
		}
		m.mu.Lock()
		m.defaultBackup[instance] = state == undefined
		m.mu.Unlock()
	}
	return nil
}

// master returns the URL of the elected MASTER of an instance; "" means that there is none yet.
func (f *Fleet) master(instance string) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.masters[instance]
}

// isDefaultBackup reports whether the balancer is BACKUP only because startAsBackup made it so.
func (m *member) isDefaultBackup(instance string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.defaultBackup[instance]
}
