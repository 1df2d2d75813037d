package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"loxilb/internal/host/retry"
)

// Remote is a store that several nodes share. It has values by path, and counts revisions. All
// calls end within seconds, except Watch and Keep. Package etcd implements it.
type Remote interface {
	// Read yields all entries as they are at one revision, and returns that revision.
	Read(ctx context.Context, yield func(RemoteEntry)) (revision int64, err error)
	// Watch calls changed with the changed entries of each revision after the given one, in
	// order. It ends with an error, when changed returns one, ctx ends, or revisions are lost.
	Watch(ctx context.Context, after int64, changed func([]RemoteEntry) error) error
	// Write makes all changes in one revision, and returns it, if each entry has the revision
	// that its change expects. Otherwise it changes nothing, and returns the latest revision of
	// these entries and false. ErrRefused means that nothing has changed. After any other
	// error, the outcome is unknown.
	Write(ctx context.Context, changes []RemoteEntry) (revision int64, ok bool, err error)
	// Revision returns the revision of the entry at a path, 0 if there is none, and the latest
	// revision of the store, which only decreases if a backup is restored.
	Revision(ctx context.Context, path string) (entry, latest int64, err error)
	// Keep creates an entry, and sets it to the result of value every few seconds. The entry
	// disappears soon after ctx or the process ends. Keep returns when ctx ends or a call
	// fails.
	Keep(ctx context.Context, path string, value func() []byte) error
	// String returns the addresses of the servers.
	String() string
}

// RemoteEntry is an entry of a Remote, or a change of one.
type RemoteEntry struct {
	Path     string
	Value    []byte // nil: deleted
	Revision int64  // last revision of the entry; in a change, the expected one; 0: the entry does not exist
}

// Join selects the objects that remain when a node first uses a shared store with other objects.
type Join string

// The values of Join.
const (
	JoinRefuse Join = ""      // none: the node does not join
	JoinRemote Join = "store" // those of the shared store: they replace the node's
	JoinLocal  Join = "local" // those of the node: they replace the shared store's
)

// sharing is the connection with a shared store. Changes of shared objects are made there first,
// and then arrive here. The local files are a cache, for a start while the shared store is
// unreachable.
type sharing struct {
	remote     Remote
	node       string // name of this node
	join       Join
	log        *slog.Logger
	loop       *retry.Loop
	writeToken chan struct{} // capacity 1: holds a token while a change is written, as concurrent changes of this node would conflict

	// The following members are guarded by Store.writing.
	store        string // ID of the shared store that this node has joined; empty: none
	head         headRecord
	headRevision int64                     // revision of the head's entry
	waiting      map[string]*remoteCommit  // changes of this node that have not arrived here, by ID
	stash        []RemoteEntry             // the first parts of a change of this node, to be applied with its last part
	problems     map[string]*RemoteProblem // by path

	mu            sync.Mutex
	nodeInfo      func() RemoteNode // describes this node to the others; nil: not set yet
	notify        func(error)       // see DescribeNode; may be nil
	ready         bool              // the shared objects here are current
	applied       int64             // revision of the shared objects here
	contact       time.Time         // when the shared store last answered
	nodes         map[string]*RemoteNode
	boot          string        // random ID of this process
	published     bool          // this process has written this node's entry
	duplicateSeen time.Time     // when another process last wrote this node's entry; zero: never
	latest        int64         // revision of the head
	latestAt      time.Time     // when latest last changed
	connections   int           // connections of this node, as last published
	publishedAt   time.Time     // when connections were last published
	failure       error         // why the objects may be outdated; nil: they are current, or it is not known yet
	since         time.Time     // when failure began
	changed       chan struct{} // closed when one of these members changes
}

// RemoteProblem is an entry of the shared store that this loxilb cannot read as an object. It does
// not change the entry, and keeps the last valid object with this path.
type RemoteProblem struct {
	Path     string
	Reason   string
	Since    time.Time // when this node found it
	revision int64
	newer    bool // written by a newer loxilb: do not overwrite it
}

// maxProblems bounds the number of remembered entries whose kind is not a shared one. Entries of
// shared kinds are all remembered, as a change of the object needs their revision.
const maxProblems = 100

// RemoteStatus is the state of the shared store, as this node sees it.
type RemoteStatus struct {
	Servers       string
	Node          string
	Ready         bool      // the shared objects here are current
	Revision      int64     // revision of the shared objects here; 0: unknown
	Contact       time.Time // when the shared store last answered; zero: never
	Since         time.Time // when Err began
	Err           error     // why the objects may be outdated; nil: they are current, or it is not known yet
	Problems      []RemoteProblem
	Latest        int64        // revision of the last change by a node that has arrived here
	Nodes         []RemoteNode // by name; includes this node once it has joined
	DuplicateName bool         // another node has this node's name
}

// Share connects the store with a shared store, which keeps objects of shared kinds the same on all
// nodes that use it. Call it before any other use of the store, and then Follow.
func (s *Store) Share(remote Remote, node string, join Join) error {
	sh := &sharing{
		remote: remote, node: node, boot: rand.Text(), join: join, log: s.log, loop: retry.New("shared objects follow the shared store", s.log),
		writeToken: make(chan struct{}, 1), waiting: map[string]*remoteCommit{}, problems: map[string]*RemoteProblem{}, nodes: map[string]*RemoteNode{}, changed: make(chan struct{}),
	}
	var err error
	if sh.store, err = s.readJoined(); err != nil {
		return fmt.Errorf("read the ID of the joined shared store: %w", err)
	}
	s.sharing = sh
	return nil
}

// SharedKind reports whether objects of a kind are in a shared store.
func (s *Store) SharedKind(kind string) bool {
	now := s.Snapshot()
	table := slices.Index(now.names, kind)
	return s.sharing != nil && table >= 0 && now.isShared(table)
}

// Remote returns the state of the shared store; false: there is none.
func (s *Store) Remote() (RemoteStatus, bool) {
	sh := s.sharing
	if sh == nil {
		return RemoteStatus{}, false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	out := RemoteStatus{
		Servers: sh.remote.String(), Node: sh.node, Ready: sh.ready, Revision: sh.applied, Contact: sh.contact, Since: sh.since, Err: sh.failure,
	}
	for _, p := range sh.problems {
		out.Problems = append(out.Problems, *p)
	}
	slices.SortFunc(out.Problems, func(a, b RemoteProblem) int { return strings.Compare(a.Path, b.Path) })
	out.Latest, out.Nodes, out.DuplicateName = sh.latest, sh.listNodes(), sh.hasDuplicateName()
	return out, true
}

// markCurrent records that the shared objects here are those of a revision.
func (sh *sharing) markCurrent(revision int64) {
	sh.loop.Worked()
	var notify func(error)
	sh.update(func() {
		if sh.failure != nil {
			notify = sh.notify
		}
		sh.ready, sh.failure, sh.since = true, nil, time.Time{}
		sh.applied = max(sh.applied, revision)
		sh.contact = time.Now()
	})
	if notify != nil {
		notify(nil)
	}
}

// recordContact records that the shared store has answered.
func (sh *sharing) recordContact() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.contact = time.Now()
}

// markStale records why the shared objects here may be outdated.
func (sh *sharing) markStale(err error) {
	var notify func(error)
	sh.update(func() {
		if sh.failure == nil {
			sh.since, notify = time.Now(), sh.notify
		}
		sh.ready, sh.failure = false, err
	})
	if notify != nil {
		notify(err)
	}
}

// update runs change with mu held, and then notifies waiters.
func (sh *sharing) update(change func()) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change()
	close(sh.changed)
	sh.changed = make(chan struct{})
}

// await waits until check, which is called with mu held, returns true. If the shared store is
// unreachable, it returns the reason.
func (sh *sharing) await(ctx context.Context, check func() bool) error {
	for {
		sh.mu.Lock()
		done, changed, err := check(), sh.changed, sh.unavailable()
		sh.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return &unavailable{fmt.Sprintf("%s did not answer in time: shared objects cannot be changed", sh.remote)}
		case <-changed:
		}
	}
}

// unavailable returns why shared objects cannot be changed; nil: they can, or it is not known yet.
// The caller holds mu.
func (sh *sharing) unavailable() error {
	if sh.failure == nil {
		return nil
	}
	return &unavailable{fmt.Sprintf("%s cannot be used since %s (%s): %v; shared objects cannot be changed until it can, and stay in effect as they are",
		sh.remote, sh.since.Format(time.TimeOnly), time.Since(sh.since).Round(time.Second), sh.failure)}
}

// unavailable is an ErrUnavailable with an explanation.
type unavailable struct{ text string }

func (u *unavailable) Error() string        { return u.text }
func (u *unavailable) Is(target error) bool { return target == ErrUnavailable }
