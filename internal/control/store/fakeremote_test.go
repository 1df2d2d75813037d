package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

// fakeRemote is a shared store in memory.
type fakeRemote struct {
	mu       sync.Mutex
	revision int64
	entries  map[string]RemoteEntry
	log      [][]RemoteEntry // revisions from first on
	first    int64
	failure  error // of all calls
	refusal  error // of changes
	changed  chan struct{}
	before   func() // called before the next write
	after    func() // called before the next write returns; watches miss that write
}

func newFakeRemote() *fakeRemote {
	return &fakeRemote{entries: map[string]RemoteEntry{}, revision: 1, first: 2, changed: make(chan struct{})}
}

func (f *fakeRemote) String() string { return "etcd at fake" }

func (f *fakeRemote) Read(_ context.Context, yield func(RemoteEntry)) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(f.entries)) {
		yield(f.entries[path])
	}
	return f.revision, f.failure
}

func (f *fakeRemote) Watch(ctx context.Context, after int64, changed func([]RemoteEntry) error) error {
	for {
		f.mu.Lock()
		wait, down := f.changed, f.failure
		var next []RemoteEntry
		if after+1 < f.first {
			f.mu.Unlock()
			return errors.New("compacted")
		}
		if i := after + 1 - f.first; down == nil && i < int64(len(f.log)) {
			next = f.log[i]
		}
		f.mu.Unlock()
		if next != nil {
			after++
			if err := changed(next); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		}
	}
}

func (f *fakeRemote) Write(_ context.Context, changes []RemoteEntry) (int64, bool, error) {
	f.mu.Lock()
	before := f.before
	f.before = nil
	f.mu.Unlock()
	if before != nil {
		before()
	}
	f.mu.Lock()
	defer func() {
		after := f.after
		f.after = nil
		f.mu.Unlock()
		if after != nil {
			after()
		}
	}()
	if err := cmp.Or(f.failure, f.refusal); err != nil {
		return 0, false, err
	}
	if len(changes) > 128 {
		return 0, false, errors.New("too many operations in txn request")
	}
	latest, ok := int64(0), true
	for _, c := range changes {
		latest = max(latest, f.entries[c.Path].Revision)
		ok = ok && f.entries[c.Path].Revision == c.Revision
	}
	if !ok {
		return latest, false, nil
	}
	f.commit(changes)
	return f.revision, true, nil
}

// commit makes changes. The caller holds mu.
func (f *fakeRemote) commit(changes []RemoteEntry) {
	f.revision++
	var events []RemoteEntry
	for _, c := range changes {
		c.Revision = f.revision
		if c.Value == nil {
			delete(f.entries, c.Path)
		} else {
			f.entries[c.Path] = c
		}
		events = append(events, c)
	}
	f.log = append(f.log, events)
	if f.after != nil {
		f.log, f.first = nil, f.revision+1
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeRemote) Revision(_ context.Context, path string) (entry, latest int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entries[path].Revision, f.revision, f.failure
}

func (f *fakeRemote) Keep(ctx context.Context, path string, value func() []byte) error {
	f.set(path, string(value()))
	<-ctx.Done()
	f.set(path, "")
	return ctx.Err()
}

// set changes an entry as another client does.
func (f *fakeRemote) set(path, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := RemoteEntry{Path: path}
	if value != "" {
		e.Value = []byte(value)
	}
	f.commit([]RemoteEntry{e})
}

// fail makes all calls fail; nil: they succeed again.
func (f *fakeRemote) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
	close(f.changed)
	f.changed = make(chan struct{})
}

// refuse makes changes fail; nil: they succeed again.
func (f *fakeRemote) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = err
}

// backup returns a function that restores the entries and the revision as they are now.
func (f *fakeRemote) backup() (restore func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	revision, entries := f.revision, maps.Clone(f.entries)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.revision, f.entries, f.log, f.first = revision, entries, nil, revision+1
	}
}

// compact removes earlier revisions from the log.
func (f *fakeRemote) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log, f.first = nil, f.revision+1
}

// objects returns the paths and labels of all objects.
func (f *fakeRemote) objects() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for _, path := range slices.Sorted(maps.Keys(f.entries)) {
		var o objectRecord
		var i item
		if path != headPath && json.Unmarshal(f.entries[path].Value, &o) == nil && json.Unmarshal(o.Object, &i) == nil {
			list = append(list, path+"="+i.Label)
		}
	}
	return strings.Join(list, " ")
}
