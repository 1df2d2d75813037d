package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "loxilb/api/v1"
	"loxilb/kube/internal/translate"
)

const (
	pollInterval = 2 * time.Second // of the revision, to notice changes by others
	pollTimeout  = 2 * time.Second
	fullInterval = 5 * time.Second // at least between comparisons with all that a balancer has
	retryRefused = 15 * time.Second
	firstBackoff = 250 * time.Millisecond
	batchPause   = 50 * time.Millisecond // between synchronizations: changes meanwhile share a request
	longestPause = time.Second           // a MASTER that was overtaken must hear of it soon after it is back
)

// member is a balancer and its known state.
type member struct {
	Target
	fleet  *Fleet
	waker  chan struct{}
	cancel context.CancelFunc

	// Of the loop alone
	synced   bool // existing is all that the balancer has
	fullAt   time.Time
	revision uint64
	foreign  map[string]string // owners of keys in use
	stuck    map[string]string // why services of ours are not deleted, by key
	doubtful bool              // it may have stored services that its data path does not have
	done     uint64            // the balancer has all changes up to here; 0: or some are missing

	mu        sync.Mutex
	stopped   bool // it is no longer a balancer
	tried     bool
	reachable bool
	refusing  bool // not reachable, but its kernel or daemon answers
	added     time.Time
	answered  time.Time // a poll, for the last time
	silent    bool      // as Services were last told: see isSilent
	since     time.Time // when reachable last became true
	problem   string
	existing  inventory // our services
	refused   map[string]refused
	roles     map[string]givenRole // by instance
	roleless  map[string]string    // roles that it did not take, by instance
	newcomer  map[string]bool      // instances for which it was made BACKUP for lack of a role
}

// present is one of our services on the balancer. Its hash is 0 if its content is not known.
type present struct {
	service types.NamespacedName
	hash    uint64
}

type refused struct {
	hash uint64
	why  string
	at   time.Time
}

func newMember(f *Fleet, t Target) *member {
	return &member{
		Target: t, fleet: f, waker: make(chan struct{}, 1), cancel: func() {}, added: time.Now(),
		existing: newInventory(0), refused: map[string]refused{}, roles: map[string]givenRole{}, newcomer: map[string]bool{},
		stuck: map[string]string{}, roleless: map[string]string{},
	}
}

func (m *member) stop() {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	forget(m.URL)
}

func (m *member) wakeUp() {
	select {
	case m.waker <- struct{}{}:
	default: // it is awake already
	}
}

// loop keeps the balancer up to date until the context ends.
func (m *member) loop(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		began := time.Now()
		touched, err := m.sync(ctx)
		wait := pollInterval
		if err != nil {
			m.synced = m.synced && isBusy(err)
			wait, backoff = backoff, min(2*backoff, longestPause)
		} else {
			backoff = firstBackoff
		}
		m.note(ctx, err)
		m.measure(time.Since(began), err)
		if m.silenceChanged() {
			m.fleet.changedAll()
		}
		for service := range touched {
			m.fleet.Changed(service)
		}
		ended := time.Now()
		timer := time.NewTimer(wait)
		if err != nil {
			select {
			case <-timer.C: // changes must not shorten the pause
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-timer.C:
		case <-m.waker:
			select {
			case <-time.After(batchPause - time.Since(ended)):
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// note records whether the balancer answers, and logs changes.
func (m *member) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was, first := m.reachable, !m.tried
	old := m.problem
	m.tried, m.reachable, m.refusing, m.problem = true, err == nil || isBusy(err), isRefusal(err), ""
	if err != nil {
		m.problem = err.Error()
	} else {
		m.answered = time.Now()
	}
	if !m.reachable {
		m.roles = map[string]givenRole{}
	}
	switch {
	case isBusy(err):
		if m.problem != old {
			m.fleet.Log.Error(err, "balancer takes no changes now", "balancer", m.URL)
		}
	case err != nil && (was || first):
		m.fleet.Log.Error(err, "balancer does not answer", "balancer", m.URL)
	case err == nil && !was:
		m.since = time.Now()
		m.fleet.Log.Info("balancer is up to date", "balancer", m.URL, "services", len(m.existing.entries))
	}
}

// busyError is why a balancer that answers takes no changes, of any Service. Its data path works,
// so it stays MASTER, and no Service is to blame.
type busyError struct{ error }

func (e busyError) Unwrap() error { return e.error }

func isBusy(err error) bool { return errors.As(err, new(busyError)) }

// isFailure reports whether an answer is about the balancer, not about the request.
func isFailure(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// isVerdict reports whether an answer is about objects of the request, not about the balancer or
// its client.
func isVerdict(err error) bool {
	var no *Refusal
	return errors.As(err, &no) && !isFailure(no.Status) && no.Status != http.StatusUnauthorized && no.Status != http.StatusForbidden
}

// isRefusal reports whether a balancer that is not up to date is alive: its kernel has refused the
// connection, or its daemon has answered with an error.
func isRefusal(err error) bool {
	if errors.As(err, new(*Refusal)) || errors.Is(err, errHangs) {
		return true
	}
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sync brings the balancer to the desired state, and returns the Services that have changed.
func (m *member) sync(ctx context.Context) (touched map[types.NamespacedName]bool, err error) {
	revision, err := m.poll(ctx)
	if err != nil {
		return nil, err
	}
	requests, end := m.polled(ctx)
	defer end()
	touched, err = m.update(requests, revision)
	return touched, judge(requests, err)
}

// update sends missing services to a balancer that has just reported its revision, and removes
// superfluous ones.
func (m *member) update(ctx context.Context, revision uint64) (touched map[types.NamespacedName]bool, err error) {
	if !m.synced {
		if err := m.setUp(ctx); err != nil {
			return nil, err
		}
		if err := m.startAsBackup(ctx); err != nil {
			return nil, err
		}
	}
	full := !m.synced || revision != m.revision && time.Since(m.fullAt) > fullInterval
	if !full && m.done != 0 && !m.fleet.hasChanged(m.done) {
		return nil, nil // to compare thousands of services at each poll costs more than the poll
	}
	m.done = 0
	v := m.fleet.view(m.Node)
	if full {
		if err := m.list(ctx, &v); err != nil {
			return nil, err
		}
		if err := m.readRoles(ctx); err != nil {
			return nil, err
		}
		m.synced, m.revision, m.fullAt = true, revision, time.Now()
	}
	touched = map[types.NamespacedName]bool{}
	if err := m.put(ctx, m.toPut(&v), touched); err != nil {
		return touched, err
	}
	if err := m.remove(ctx, m.toRemove(&v), touched); err != nil {
		return touched, err
	}
	m.forgetRefusals(&v)
	if len(m.refused) == 0 && len(m.stuck) == 0 {
		m.done, m.doubtful = v.changes, false
	}
	return touched, nil
}

// list reads the balancer's services. It does not compare their content: putting an unchanged
// service again has no effect.
func (m *member) list(ctx context.Context, v *view) error {
	select {
	case m.fleet.lists <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	services, err := m.Client.Services(ctx)
	<-m.fleet.lists
	if err != nil {
		return err
	}
	existing, foreign := newInventory(len(services)), map[string]string{}
	for i := range services {
		s := &services[i]
		key := keyOf(s)
		namespace, name, named := translate.ServiceOf(s.Name)
		service := types.NamespacedName{Namespace: namespace, Name: name}
		it, wanted := v.items[key]
		switch {
		case s.Managed && s.Owner == m.fleet.Owner && (!m.fleet.isOfOtherZone(s.Name) || wanted && it.service == service),
			s.Managed && s.Owner == "" && named && wanted && it.service == service,
			s.Managed && s.Owner == "" && named && m.fleet.TakeOver && m.fleet.isOfZone(s.Name):
			existing.put(key, present{service: service})
		default:
			foreign[key] = fmt.Sprintf("service %q of %s", s.Name, ownerOf(s))
		}
	}
	m.foreign = foreign
	m.mu.Lock()
	defer m.mu.Unlock()
	m.existing = existing
	for key, r := range m.refused { // they are tried again, and stay refused until then
		r.at = time.Time{}
		m.refused[key] = r
	}
	return nil
}

// isOfOtherZone reports whether a service's name has another zone. Controllers of one cluster have
// one owner, and those of different zones may share balancers: none must take the services of
// another for its garbage.
func (f *Fleet) isOfOtherZone(name string) bool {
	return strings.Contains(name, ":") && !f.isOfZone(name)
}

// isOfZone reports whether a service's name has the zone of this controller.
func (f *Fleet) isOfZone(name string) bool {
	return strings.Contains(name, ":"+f.Zone+"-inst")
}

func ownerOf(s *v1.ServiceArguments) string {
	switch {
	case s.Owner != "":
		return fmt.Sprintf("controller %q", s.Owner)
	case s.Managed:
		return "another controller"
	}
	return "a user of the balancer"
}

// entry is an item with its key.
type entry struct {
	key string
	item
}

// toPut returns services that are missing or different on the balancer. Foreign services stay.
func (m *member) toPut(v *view) (list []entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, it := range v.items {
		if p, there := m.existing.entries[key]; there && p.hash == it.hash {
			continue
		}
		if r, no := m.refused[key]; no && r.hash == it.hash && time.Since(r.at) < retryRefused {
			continue
		}
		list = append(list, entry{key, it})
	}
	return list
}

// toRemove returns our services that are no longer wanted.
func (m *member) toRemove(v *view) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, p := range m.existing.entries {
		if _, wanted := v.items[key]; !wanted && v.complete && !v.held[p.service] {
			keys = append(keys, key)
		}
	}
	return keys
}

// forgetRefusals forgets refused services that are no longer wanted.
func (m *member) forgetRefusals(v *view) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.refused {
		if _, wanted := v.items[key]; !wanted {
			delete(m.refused, key)
		}
	}
}

// putSome sends services in one request. If the balancer refuses some, it sends the others again.
func (m *member) putSome(ctx context.Context, list []entry, touched map[types.NamespacedName]bool) error {
	if len(list) == 0 {
		return nil
	}
	specs := make([]json.RawMessage, len(list))
	for i, e := range list {
		specs[i] = e.spec
	}
	result, err := m.Client.Apply(ctx, specs, false)
	var no *Refusal
	switch {
	case err == nil:
		m.advance(result.Revision)
		return m.acceptApplied(ctx, list, touched)
	case errors.As(err, &no) && isFailure(no.Status):
		m.doubtful = true
		return busyError{err}
	case !isVerdict(err):
		return err
	case len(list) == 1:
		m.refuse(list[0], no.Error(), touched)
		return nil
	}
	good, named := list[:0:0], false
	bad := map[int]string{}
	for _, e := range no.Body.Errors {
		if e.Index >= 0 && e.Index < len(list) {
			bad[e.Index], named = e.Message, true
		}
	}
	if !named { // the answer does not name them
		half := len(list) / 2
		if err := m.putSome(ctx, list[:half], touched); err != nil {
			return err
		}
		return m.putSome(ctx, list[half:], touched)
	}
	for i, e := range list {
		if why, refused := bad[i]; refused {
			m.refuse(e, why, touched)
		} else {
			good = append(good, e)
		}
	}
	return m.putSome(ctx, good, touched)
}

// advance records the revision of our change. If there were other changes in between, the next
// synchronization compares everything.
func (m *member) advance(revision uint64) {
	if revision == m.revision+1 {
		m.revision = revision
	}
}

func (m *member) accept(list []entry, touched map[types.NamespacedName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range list {
		m.existing.put(e.key, present{e.service, e.hash})
		delete(m.refused, e.key)
		touched[e.service] = true
	}
}

func (m *member) refuse(e entry, why string, touched map[types.NamespacedName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, again := m.refused[e.key]; !again || old.why != why {
		m.fleet.Log.Info("balancer refuses a service", "balancer", m.URL, "service", e.key, "of", e.service, "reason", why)
	}
	m.refused[e.key] = refused{e.hash, why, time.Now()}
	touched[e.service] = true
}

// report adds the state of entries on the balancer, and reports whether the balancer answers. What
// a silent one had or refused counts no longer.
func (m *member) report(entries []translate.Entry, have map[string]bool, failures map[string]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isSilent() {
		return false
	}
	for _, e := range entries {
		if p, there := m.existing.entries[e.Key]; there && p.hash == e.Hash {
			have[e.Key] = true
		}
		if r, no := m.refused[e.Key]; no {
			failures[e.Key] = m.URL + ": " + r.why
		}
	}
	return m.reachable
}

// busyWith returns why the balancer takes no changes although it answers, or nothing.
func (m *member) busyWith() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.reachable || m.problem == "" {
		return ""
	}
	return m.URL + ": " + m.problem
}

func (m *member) wasTried() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tried
}

// has reports whether a balancer that may be reached has something of a Service.
func (m *member) has(service types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tried && !m.reachable {
		return false
	}
	return !m.tried || m.existing.has(service)
}

// hasAny reports whether the balancer may be reachable and have our services.
func (m *member) hasAny() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.tried || m.reachable && len(m.existing.entries) > 0
}
