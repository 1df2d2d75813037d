package compile

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"loxilb/internal/lb"
)

// Snapshot has the services of one state of the store. Two snapshots are equal (==) only if they
// have the same services.
type Snapshot interface {
	Services
	Get(lb.Key) (lb.Service, bool)
	All() iter.Seq[lb.Service]
}

// Admission checks whether a state of the store fits into the data path, before it is accepted. It
// caches the total cost, so a check visits only changed services and the services that have them as
// endpoints. It is not safe for concurrent use.
type Admission struct {
	snapshot Snapshot // the state to which the members below belong; nil: none
	total    Cost
	vipUsers *vipUsers
}

// NewAdmission returns an Admission without a snapshot: the first check visits all services.
func NewAdmission() *Admission { return &Admission{} }

// LimitError reports that the data path has no room for a change.
type LimitError struct{ text string }

func (e *LimitError) Error() string { return e.text }

// Load accepts a snapshot without a check, and returns the limits that it exceeds. It is for state
// from files, which is never refused.
func (a *Admission) Load(s Snapshot) (over []error) {
	a.snapshot, a.total, a.vipUsers = s, Cost{}, newVIPUsers()
	r := NewResolver(s)
	for service := range s.All() {
		resolved, _, _ := r.Resolve(service)
		a.total.add(1, CostOf(&resolved))
		a.vipUsers.add(s, &service)
	}
	for _, l := range limits() {
		if n := l.used(a.total); n > l.allowed {
			over = append(over, l.refuse(s, n, n))
		}
	}
	return over
}

// Check refuses a change that makes the services exceed a limit (*LimitError), or by which a
// service leads back to itself, through too many services, or to too many endpoints
// (*lb.FieldError). changed has the keys of services that differ between before and after. Services
// over a limit may shrink or stay unchanged.
//
// After a nil result, Check assumes that the change is made. Otherwise, the next check visits all
// services again.
func (a *Admission) Check(before, after Snapshot, changed []lb.Key) error {
	if a.snapshot != before {
		a.Load(before)
	}
	newUsers := a.vipUsers.usersOfNewVIPs(before, after, changed)
	keys := a.vipUsers.affected(before, after, changed, newUsers)
	total := a.total
	resolverBefore, resolverAfter := NewResolver(before), NewResolver(after)
	isChanged := make(map[lb.Key]bool, len(changed))
	for _, k := range changed {
		isChanged[k] = true
	}
	for _, k := range keys {
		var faulty bool
		if s, ok := before.Get(k); ok {
			s, _, err := resolverBefore.Resolve(s)
			total.add(-1, CostOf(&s))
			faulty = err != nil && !isChanged[k]
		}
		if s, ok := after.Get(k); ok {
			s, _, err := resolverAfter.Resolve(s)
			total.add(1, CostOf(&s))
			if err != nil && !faulty {
				return err
			}
		}
	}
	for _, l := range limits() {
		if n, now := l.used(total), l.used(a.total); n > l.allowed && n > now {
			return l.refuse(after, n, now)
		}
	}
	a.vipUsers.update(before, after, changed, newUsers)
	a.snapshot, a.total = after, total
	return nil
}

// refuse returns an error that names the services with the most rows of the exceeded kind.
func (l *limit) refuse(s Snapshot, n, now int) error {
	type use struct {
		key lb.Key
		n   int
	}
	const shown = 3
	var most []use
	r := NewResolver(s)
	for service := range s.All() {
		resolved, _, _ := r.Resolve(service)
		n := l.used(CostOf(&resolved))
		if n == 0 || len(most) == shown && n <= most[shown-1].n {
			continue
		}
		if len(most) == shown {
			most = most[:shown-1]
		}
		most = append(most, use{service.Key, n})
		slices.SortStableFunc(most, func(a, b use) int { return cmp.Compare(b.n, a.n) })
	}
	var names []string
	for _, u := range most {
		names = append(names, fmt.Sprintf("%s %d", u.key, u.n))
	}
	return &LimitError{fmt.Sprintf("%d %s are more than the data path has room for (allowed: %d; now: %d; most: %s)",
		n, l.what, l.allowed, now, strings.Join(names, ", "))}
}
