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

	undefined = "NOT_DEFINED" // without a role, a balancer answers for VIPs

	asked  = time.Second // between elections
	settle = time.Minute // that a balancer answers before VIPs move to it, whose connections may break

	// restartTime is how long a daemon may need to be replaced. A balancer whose daemon was
	// down for longer is no longer MASTER: its lease has ended when another one is elected.
	restartTime = 30 * time.Second
)

// Roles configures whether this controller elects the owner of an instance's VIPs.
type Roles struct {
	VIP       netip.Addr // address of the cluster that endpoints see with mode fullnat; the zero value: no roles
	Instances int
	Excluded  []string // hosts that are never MASTER
	Spread    bool     // instances move, so balancers have equally many
}

// Enabled reports whether roles are chosen here.
func (r Roles) Enabled() bool { return r.VIP.IsValid() }

// election is which balancer is MASTER of each instance.
type election struct {
	masters map[string]string    // URLs, by instance
	away    map[string]time.Time // since when MASTERs are, by URL
	unheard map[string]int       // consecutive silences of departed MASTERs' nodes, by URL
	backups time.Time            // of the first election after a start that found only BACKUPs
}

func newElection() *election {
	return &election{masters: map[string]string{}, away: map[string]time.Time{}}
}

// elect chooses the MASTER of each instance until the context ends. Instances are spread over the
// balancers. A MASTER stays while it answers or may be restarting, unless Roles.Spread has its
// instance move.
func (f *Fleet) elect(ctx context.Context) {
	e := newElection()
	tick := time.NewTicker(asked)
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

func (f *Fleet) electOnce(ctx context.Context, e *election) {
	all := f.list()
	e.askDeparted(ctx, all)
	known := !slices.ContainsFunc(all, func(m *member) bool { return !m.wasTried() })
	members := slices.DeleteFunc(slices.Clone(all), func(m *member) bool { return !m.answers() })
	candidates := slices.DeleteFunc(slices.Clone(members), func(m *member) bool {
		u, err := url.Parse(m.URL)
		return err == nil && slices.Contains(f.Roles.Excluded, u.Hostname()) || slices.Contains(f.Roles.Excluded, m.Node) && m.Node != ""
	})
	if f.Roles.Spread {
		f.even(candidates, e.masters)
	}
	states := statesOf(ctx, candidates, e.masters, f.Roles.Instances)
	slow := newSlowMembers()
	defer e.forgetGone(all)
	for i := range max(1, f.Roles.Instances) {
		instance := translate.Instance(f.Zone, i)
		if e.masters[instance] == "" && (!known || states.hasBackup(instance) && (e.mayBeMaster(all, candidates, states) || hasReturned(all, members) || e.mayBeAbsent(all, states, instance))) {
			continue // after a start: a balancer that has not told its roles yet may well be MASTER
		}
		elected := e.chosen(all, candidates, states, instance)
		if elected == "" {
			continue // the last one continues, if it can
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
			var all sync.WaitGroup
			for _, m := range members {
				if (m.URL == elected) == (role == master) && !slow.has(m) {
					all.Go(func() {
						if !f.assign(ctx, m, instance, role) {
							slow.add(m)
						}
					})
				}
			}
			all.Wait()
		}
	}
}

// chosen returns the URL of the MASTER: the present one, or after a start of this controller the
// balancer that reports this role, or else the balancer with the fewest instances.
func (e *election) chosen(all, candidates []*member, states roleStates, instance string) string {
	present := e.masters[instance]
	if slices.ContainsFunc(candidates, func(m *member) bool { return m.URL == present }) {
		delete(e.away, present)
		return present
	}
	if present != "" && e.returns(present, all) {
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
	least, _ := extremes(candidates, e.masters)
	return least.URL
}

// returns reports whether a balancer that does not answer may be back soon: its node refuses
// connections or accepts them for a daemon that hangs, also after its pod was deleted. Meanwhile
// that node's kernel balances and answers for the VIPs, so a second MASTER would break connections.
func (e *election) returns(url string, all []*member) bool {
	if e.unheard[url] >= missedPolls {
		return false
	}
	if i := slices.IndexFunc(all, func(m *member) bool { return m.URL == url }); i >= 0 {
		if all[i].answers() {
			return true // since this election began
		}
		if !all[i].isRestarting() {
			return false
		}
	}
	return e.waitsFor(url)
}

// waitsFor reports whether a balancer that is away has been so for less than a restart may take,
// since an election noticed it.
func (e *election) waitsFor(url string) bool {
	if e.away[url].IsZero() {
		e.away[url] = time.Now()
	}
	return time.Since(e.away[url]) < restartTime
}

// forgetGone forgets balancers that are in the list no longer and MASTER of nothing: nodes come and
// go for years.
func (e *election) forgetGone(all []*member) {
	counts := instancesOf(e.masters)
	maps.DeleteFunc(e.away, func(url string, _ time.Time) bool {
		return counts[url] == 0 && !slices.ContainsFunc(all, func(m *member) bool { return m.URL == url })
	})
}

// mayBeMaster reports whether a balancer that has not told its roles may be MASTER: it may be
// restarting, or it has failed to answer now although it answered its last poll. Its daemon may
// have ended since then, and the next poll tells more.
func (e *election) mayBeMaster(all, candidates []*member, states roleStates) bool {
	return slices.ContainsFunc(all, func(m *member) bool { return m.isRestarting() && e.returns(m.URL, all) }) ||
		slices.ContainsFunc(candidates, func(m *member) bool { return states[m.URL] == nil && e.waitsFor(m.URL) })
}

// roleStates are the roles that balancers report, by URL and instance.
type roleStates map[string]map[string]string

// statesOf asks balancers for their roles, if the MASTER of an instance is not known.
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
				if !m.isNewcomer(s.Instance) {
					out[m.URL][s.Instance] = s.State
				}
			}
		})
	}
	all.Wait()
	return out
}

// hasBackup reports whether a balancer is BACKUP of an instance, so another one is or was MASTER.
func (r roleStates) hasBackup(instance string) bool {
	for _, states := range r {
		if states[instance] == backup {
			return true
		}
	}
	return false
}

// even moves one instance from the balancer with the most to the balancer with the fewest, if they
// differ by more than one. So a new balancer gets its share, one instance at a time.
func (f *Fleet) even(candidates []*member, masters map[string]string) {
	settled := slices.DeleteFunc(slices.Clone(candidates), func(m *member) bool { return !m.answersFor(settle) })
	if len(settled) < 2 {
		return
	}
	least, most := extremes(settled, masters)
	counts := instancesOf(masters)
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

// extremes returns the balancers with the fewest and the most instances, the first of equal ones.
func extremes(candidates []*member, masters map[string]string) (least, most *member) {
	counts := instancesOf(masters)
	compare := func(a, b *member) int { return cmp.Compare(counts[a.URL], counts[b.URL]) }
	return slices.MinFunc(candidates, compare), slices.MaxFunc(candidates, compare)
}

// instancesOf counts the instances of each balancer, by URL.
func instancesOf(masters map[string]string) map[string]int {
	counts := map[string]int{}
	for _, url := range masters {
		counts[url]++
	}
	return counts
}

// answersFor reports whether the balancer has answered for a time.
func (m *member) answersFor(d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reachable && time.Since(m.since) >= d
}

// isRestarting reports whether the balancer's node answers, but its daemon does not.
func (m *member) isRestarting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tried && !m.reachable && m.refusing
}

func (m *member) answers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reachable
}

// slowMembers are balancers that did not take a role in this election. They are not asked again
// until the next one: an election must not wait for them once for each instance.
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

// assign gives a balancer a role, and reports whether it has it.
func (f *Fleet) assign(ctx context.Context, m *member, instance, role string) bool {
	given := givenRole{role, f.lease()}
	m.mu.Lock()
	has := m.roles[instance]
	m.mu.Unlock()
	if has == given {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	err := m.setRole(ctx, instance, role)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.roleless[instance] != role { // elections are every second
			f.Log.Error(err, "cannot set the role of a balancer", "balancer", m.URL, "instance", instance, "role", role)
		}
		m.roleless[instance] = role
		return false
	}
	delete(m.roleless, instance)
	m.roles[instance] = given
	delete(m.newcomer, instance)
	return true
}

// givenRole is a role that a balancer was given, and its lease in seconds.
type givenRole struct {
	role  string
	lease int
}

// lease returns the lease of roles in seconds: none if no other balancer could take over.
func (f *Fleet) lease() int {
	if len(f.list()) < 2 {
		return 0
	}
	return int(restartTime / time.Second)
}

// setRole gives a balancer a role with a lease, or without if it is of a version that has none.
func (m *member) setRole(ctx context.Context, instance, role string) error {
	state := v1.InstanceState{Instance: instance, State: role, Vip: m.fleet.Roles.VIP.String(), LeaseSeconds: m.fleet.lease()}
	err := m.Client.Post(ctx, "/config/cistate", state)
	if r := (*Refusal)(nil); errors.As(err, &r) && r.Status == http.StatusBadRequest {
		state.LeaseSeconds = 0
		return m.Client.Post(ctx, "/config/cistate", state)
	}
	return err
}

// readRoles forgets the roles that a balancer has lost, so they are set again: its lease has ended
// unnoticed, or another client has changed them.
func (m *member) readRoles(ctx context.Context) error {
	if !m.fleet.Roles.Enabled() {
		return nil
	}
	states, err := m.Client.Instances(ctx)
	if err != nil {
		return err
	}
	has := map[string]string{}
	for _, s := range states {
		has[s.Instance] = s.State
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.roles, func(instance string, given givenRole) bool { return has[instance] != given.role })
	return nil
}

// startAsBackup makes a balancer that has returned BACKUP for instances without a role, and for
// instances that another balancer has taken over meanwhile. It runs before services are sent, since
// a balancer without a role answers for their VIPs.
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
		if err := m.setRole(ctx, instance, backup); err != nil {
			return fmt.Errorf("set the role of instance %s: %w", instance, err)
		}
		m.mu.Lock()
		m.newcomer[instance] = state == undefined
		m.mu.Unlock()
	}
	return nil
}

// master returns the URL of the balancer that was elected for an instance; "": none yet.
func (f *Fleet) master(instance string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.masters[instance]
}

// isNewcomer reports whether the balancer is BACKUP only because it had no role.
func (m *member) isNewcomer(instance string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newcomer[instance]
}
