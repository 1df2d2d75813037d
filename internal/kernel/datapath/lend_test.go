package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// lentDatapath is a data path that several tests use one after another.
type lentDatapath struct {
	d     *Datapath
	clean *dptest.State
}

// idle has the data paths that no test uses.
var idle struct {
	mu   sync.Mutex
	list []*lentDatapath
}

// borrow returns a data path without services and connections, which an earlier test may have used.
// It has Config{Connections: 65536}. Programs and hashes that a test has needed still exist, and
// services and endpoints have other ids than in a new data path. Tests that examine these, that
// replace maps, or that wait for the Bell, load their own data path.
func borrow(t testing.TB, protocol lb.Protocol) *Datapath {
	t.Helper()
	l := takeIdle(protocol == lb.SCTP)
	if l == nil {
		d := loadOwn(t)
		clean, err := dptest.NewState(d.collection)
		if err != nil {
			t.Fatal(errors.Join(err, d.Close()))
		}
		l = &lentDatapath{d, clean}
	}
	t.Cleanup(func() { l.release(t) })
	return l.d
}

// loadOwn loads a data path that the caller must close.
func loadOwn(t testing.TB) *Datapath {
	t.Helper()
	d, err := Load(Config{Connections: 65536})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// takeIdle returns an idle data path, or nil: if possible, one that has programs for SCTP only if
// they are wanted.
func takeIdle(sctp bool) *lentDatapath {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if len(idle.list) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(idle.list, func(l *lentDatapath) bool { return l.d.collection.HandlesSCTP() == sctp }))
	l := idle.list[i]
	idle.list = slices.Delete(idle.list, i, i+1)
	return l
}

// release cleans up after a test.
func (l *lentDatapath) release(t testing.TB) {
	var err error
	if !t.Failed() {
		if err = l.reset(); err == nil {
			idle.mu.Lock()
			defer idle.mu.Unlock()
			idle.list = append(idle.list, l)
			return
		}
	}
	if errors.Is(err, dptest.ErrGrown) || errors.Is(err, errLeft) {
		t.Logf("the data path is closed: %v", err)
		err = nil
	}
	if err := errors.Join(err, l.d.Close()); err != nil {
		t.Errorf("clean up after the test: %v", err)
	}
}

// errLeft reports that endpoints still have connections: the test has changed entries, so the sweep
// has not counted their ends.
var errLeft = errors.New("deleted endpoints have connections")

// reset deletes all services and connections, and restores what they have changed.
func (l *lentDatapath) reset() error {
	var changes []Change
	for _, key := range l.d.Services() {
		changes = append(changes, Change{Key: key})
	}
	err := errors.Join(l.d.Apply(changes)...)
	l.d.ForgetPlaces()
	// Source ports stay reserved for a while after the end of their connections.
	for i := 0; err == nil && i < 4 && (i < 2 || l.d.EndpointRows() > 0); i++ {
		err = errors.Join(dptest.AgeConnections(l.d.collection.Conntrack, l.d.collection.Jiffies(3*time.Hour)), l.d.Sweep(context.Background()))
	}
	if err == nil && l.d.EndpointRows() > 0 {
		err = errLeft
	}
	if err == nil {
		err = l.clean.Restore(l.d.collection)
	}
	if err != nil {
		return err
	}
	for _, c := range append(l.d.Tables.Audit(false), l.d.Routing.Audit(false)...) {
		if len(c.Differences) > 0 {
			return fmt.Errorf("%s differs: %v", c.Table, c.Differences)
		}
	}
	return nil
}
