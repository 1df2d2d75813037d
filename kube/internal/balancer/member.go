package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	fullInterval = 5 * time.Second // minimum time between comparisons with all services of a balancer
	retryRefused = 15 * time.Second
	firstBackoff = 250 * time.Millisecond
	batchPause   = 50 * time.Millisecond // between synchronizations: changes meanwhile share a request
	maxBackoff   = time.Second           // a former MASTER that returns must become BACKUP soon
)

// member is a balancer of the fleet, and its known state.
type member struct {
	Target
	fleet  *Fleet
	waker  chan struct{}
	cancel context.CancelFunc

	// Only used by the loop
	synced         bool      // existing has all services of ours on the balancer
	fullAt         time.Time // last comparison with all services of the balancer
	revision       uint64
	foreign        map[string]string // owners of services that are not ours, by key
	undeletable    map[string]string // why the balancer does not delete services of ours, by key
	mayBeUnapplied bool              // the data path may lack services that the balancer has stored
	syncedChanges  uint64            // Fleet.changes that the balancer has; 0: some may be missing

	mu             sync.Mutex
	stopped        bool // it is no longer a balancer
	tried          bool // a synchronization has succeeded or failed
	reachable      bool
	alive          bool // not reachable, but its kernel or daemon answers
	added          time.Time
	answered       time.Time // last answer to a poll
	reportedSilent bool      // the result of isSilentLocked that Services know
	reachableSince time.Time
	problem        string
	existing       inventory // services of ours
	refused        map[string]refused
	roles          map[string]assignedRole // by instance
	rejectedRoles  map[string]string       // roles that it refused last, by instance
	defaultBackup  map[string]bool         // instances in which startAsBackup gave it its first role
}

// storedService is a service of ours on the balancer. Its hash is 0 if its content is unknown.
type storedService struct {
	service types.NamespacedName
	hash    uint64
}

// refused is a service that the balancer has refused.
type refused struct {
	hash uint64
	why  string
	at   time.Time
}

func newMember(f *Fleet, t Target) *member {
	return &member{
		Target: t, fleet: f, waker: make(chan struct{}, 1), cancel: func() {}, added: time.Now(),
		existing: newInventory(0), refused: map[string]refused{}, roles: map[string]assignedRole{}, defaultBackup: map[string]bool{},
		undeletable: map[string]string{}, rejectedRoles: map[string]string{},
	}
}

// stop ends the loop of a balancer that was removed.
func (m *member) stop() {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	deleteMetrics(m.URL)
}

// wake makes the loop synchronize soon.
func (m *member) wake() {
	select {
	case m.waker <- struct{}{}:
	default: // it will do so already
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
			wait, backoff = backoff, min(2*backoff, maxBackoff)
		} else {
			backoff = firstBackoff
		}
		m.recordSync(ctx, err)
		m.recordMetrics(time.Since(began), err)
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
			case <-timer.C: // changes do not shorten the pause
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

// recordSync records whether a synchronization succeeded, and logs changes.
func (m *member) recordSync(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	wasReachable, isFirst, lastProblem := m.reachable, !m.tried, m.problem
	m.tried, m.reachable, m.alive, m.problem = true, err == nil || isBusy(err), isAliveError(err), ""
	if err != nil {
		m.problem = err.Error()
	} else {
		m.answered = time.Now()
	}
	if !m.reachable {
		m.roles = map[string]assignedRole{}
	}
	switch {
	case isBusy(err):
		if m.problem != lastProblem {
			m.fleet.Log.Error(err, "balancer takes no changes now", "balancer", m.URL)
		}
	case err != nil && (wasReachable || isFirst):
		m.fleet.Log.Error(err, "balancer does not answer", "balancer", m.URL)
	case err == nil && !wasReachable:
		m.reachableSince = time.Now()
		m.fleet.Log.Info("balancer is up to date", "balancer", m.URL, "services", len(m.existing.entries))
	}
}

// busyError is why a balancer that answers polls applies no changes of any Service. Its data path
// works, so it stays MASTER, and no Service counts as refused.
type busyError struct{ error }

func (e busyError) Unwrap() error { return e.error }

func isBusy(err error) bool { return errors.As(err, new(busyError)) }

// isServerError reports whether the cause of an error status is the balancer, not the request.
func isServerError(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// isObjectError reports whether the cause of an error status is an object of the request, not the
// balancer or the client's token.
func isObjectError(err error) bool {
	var e *StatusError
	return errors.As(err, &e) && !isServerError(e.Status) && e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden
}

// isAliveError reports whether a failure shows that the balancer's node is alive: its kernel has
// refused the connection, or its daemon has answered with an error.
func isAliveError(err error) bool {
	if errors.As(err, new(*StatusError)) || errors.Is(err, errHangs) {
		return true
	}
	return slices.ContainsFunc([]error{syscall.ECONNREFUSED, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF},
		func(e error) bool { return errors.Is(err, e) })
}

// sync brings the balancer to the desired state, and returns the Services whose state has changed.
func (m *member) sync(ctx context.Context) (touched map[types.NamespacedName]bool, err error) {
	revision, err := m.poll(ctx)
	if err != nil {
		return nil, err
	}
	requests, end := m.withPolls(ctx)
	defer end()
	touched, err = m.update(requests, revision)
	return touched, classify(requests, err)
}

// update sends missing services to a balancer that has just reported its revision, and deletes
// unwanted ones.
func (m *member) update(ctx context.Context, revision uint64) (touched map[types.NamespacedName]bool, err error) {
	if !m.synced {
		if err := m.setUpBGP(ctx); err != nil {
			return nil, err
		}
		if err := m.startAsBackup(ctx); err != nil {
			return nil, err
		}
	}
	full := !m.synced || revision != m.revision && time.Since(m.fullAt) > fullInterval
	if !full && m.syncedChanges != 0 && !m.fleet.hasChanged(m.syncedChanges) {
		return nil, nil // comparing thousands of services at each poll would cost more than the poll
	}
	m.syncedChanges = 0
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
	if len(m.refused) == 0 && len(m.undeletable) == 0 {
		m.syncedChanges, m.mayBeUnapplied = v.changes, false
	}
	return touched, nil
}

// list reads the balancer's services. It does not compare their content: sending an unchanged
// service again has no effect.
func (m *member) list(ctx context.Context, v *view) error {
	select {
	case m.fleet.listSlots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	services, err := m.Client.Services(ctx)
	<-m.fleet.listSlots
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
			existing.put(key, storedService{service: service})
		default:
			foreign[key] = fmt.Sprintf("service %q of %s", s.Name, ownerOf(s))
		}
	}
	m.foreign = foreign
	m.mu.Lock()
	defer m.mu.Unlock()
	m.existing = existing
	for key, r := range m.refused { // they count as refused until they are sent again, now
		r.at = time.Time{}
		m.refused[key] = r
	}
	return nil
}

// isOfOtherZone reports whether a service's name has another zone. Controllers of different zones
// have the same owner and may share balancers: neither must delete the other's services.
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

// toPut returns the services that are missing or different on the balancer, except those that it
// has refused recently.
func (m *member) toPut(v *view) (list []entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, it := range v.items {
		if p, exists := m.existing.entries[key]; exists && p.hash == it.hash {
			continue
		}
		if r, wasRefused := m.refused[key]; wasRefused && r.hash == it.hash && time.Since(r.at) < retryRefused {
			continue
		}
		list = append(list, entry{key, it})
	}
	return list
}

// toRemove returns the keys of our services that are no longer wanted.
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

// forgetRefusals removes unwanted services from m.refused.
func (m *member) forgetRefusals(v *view) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.refused {
		if _, wanted := v.items[key]; !wanted {
			delete(m.refused, key)
		}
	}
}

// putBatch sends services in one request. If the balancer refuses some of them, it sends the others
// again.
func (m *member) putBatch(ctx context.Context, list []entry, touched map[types.NamespacedName]bool) error {
	if len(list) == 0 {
		return nil
	}
	specs := make([]json.RawMessage, len(list))
	for i, e := range list {
		specs[i] = e.spec
	}
	result, err := m.Client.Apply(ctx, specs, false)
	var status *StatusError
	switch {
	case err == nil:
		m.advanceRevision(result.Revision)
		return m.recordApplied(ctx, list, touched)
	case errors.As(err, &status) && isServerError(status.Status):
		m.mayBeUnapplied = true
		return busyError{err}
	case !isObjectError(err):
		return err
	case len(list) == 1:
		m.recordRefused(list[0], status.Error(), touched)
		return nil
	}
	var good []entry
	bad := map[int]string{}
	for _, e := range status.Body.Errors {
		if e.Index >= 0 && e.Index < len(list) {
			bad[e.Index] = e.Message
		}
	}
	if len(bad) == 0 { // the answer does not say which services are refused
		half := len(list) / 2
		if err := m.putBatch(ctx, list[:half], touched); err != nil {
			return err
		}
		return m.putBatch(ctx, list[half:], touched)
	}
	for i, e := range list {
		if why, isBad := bad[i]; isBad {
			m.recordRefused(e, why, touched)
		} else {
			good = append(good, e)
		}
	}
	return m.putBatch(ctx, good, touched)
}

// advanceRevision records the revision of our own change. If others have changed something
// meanwhile, it does not, so the next synchronization compares everything.
func (m *member) advanceRevision(revision uint64) {
	if revision == m.revision+1 {
		m.revision = revision
	}
}

// recordAccepted records that the balancer has services.
func (m *member) recordAccepted(list []entry, touched map[types.NamespacedName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range list {
		m.existing.put(e.key, storedService{e.service, e.hash})
		delete(m.refused, e.key)
		touched[e.service] = true
	}
}

// recordRefused records that the balancer has refused a service, and logs a new reason.
func (m *member) recordRefused(e entry, why string, touched map[types.NamespacedName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, again := m.refused[e.key]; !again || last.why != why {
		m.fleet.Log.Info("balancer refuses a service", "balancer", m.URL, "service", e.key, "of", e.service, "reason", why)
	}
	m.refused[e.key] = refused{e.hash, why, time.Now()}
	touched[e.service] = true
}

// addState adds the entries that the balancer has to have, and those that it refused to failures.
// It reports whether the balancer answers. The former state of a silent balancer no longer counts.
func (m *member) addState(entries []translate.Entry, have map[string]bool, failures map[string]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isSilentLocked() {
		return false
	}
	for _, e := range entries {
		if p, exists := m.existing.entries[e.Key]; exists && p.hash == e.Hash {
			have[e.Key] = true
		}
		if r, wasRefused := m.refused[e.Key]; wasRefused {
			failures[e.Key] = m.URL + ": " + r.why
		}
	}
	return m.reachable
}

// busyReason returns why the balancer applies no changes although it answers, or "".
func (m *member) busyReason() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.reachable || m.problem == "" {
		return ""
	}
	return m.URL + ": " + m.problem
}

func (m *member) isTried() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tried
}

// has reports whether the balancer has services of a Service. An unreachable balancer counts as
// having none; one that was not tried yet may have some.
func (m *member) has(service types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.tried || m.reachable && m.existing.has(service)
}

// hasAny reports whether the balancer has services of ours, like has.
func (m *member) hasAny() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.tried || m.reachable && len(m.existing.entries) > 0
}
