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

// Remote is a store that several nodes share: values by path, with one revision for all changes.
// Each call ends within seconds, except Watch. Package etcd implements it.
type Remote interface {
	// Read yields all entries as they are at one revision, and returns it.
	Read(ctx context.Context, yield func(RemoteEntry)) (revision int64, err error)
	// Watch calls changed with the entries of each later revision, in order, until it fails:
	// changed returns an error, ctx ends, or revisions are lost.
	Watch(ctx context.Context, after int64, changed func([]RemoteEntry) error) error
	// Write makes all changes in one revision, which it returns, if each entry has the revision
	// that its change names. If not, it changes nothing and returns false, with the latest revision
	// of these entries. ErrRefused means that nothing has changed. After any other error, the
	// outcome is unknown.
	Write(ctx context.Context, changes []RemoteEntry) (revision int64, ok bool, err error)
	// Revision returns the revision of the entry at a path; 0: there is none.
	Revision(ctx context.Context, path string) (int64, error)
	// Keep creates an entry, and updates it every few seconds to the result of value. The entry
	// disappears soon after ctx or the process ends. Keep returns when ctx ends or a call fails.
	Keep(ctx context.Context, path string, value func() []byte) error
	// String returns the addresses of the servers.
	String() string
}

// RemoteEntry is an entry of a Remote, or a change of one.
type RemoteEntry struct {
	Path     string
	Value    []byte // nil: deleted
	Revision int64  // last revision of the entry; in a change, the expected one; 0: it does not exist
}

// Join selects the objects that survive when a node first uses a shared store with other objects.
type Join string

// The values of Join.
const (
	JoinRefuse Join = ""      // the node keeps its objects and does not join
	JoinRemote Join = "store" // the node adopts the objects of the shared store, and drops its own
	JoinLocal  Join = "local" // the node replaces the objects of the shared store by its own
)

// sharing is the connection with a shared store. Shared objects change there first, and follow
// here: the local files are a cache, with which a process starts while the shared store is away.
type sharing struct {
	remote Remote
	node   string // name of this node
	join   Join
	log    *slog.Logger
	loop   *retry.Loop
	turn   chan struct{} // holds a token while a change is written: concurrent changes of this node would conflict

	// The following members are guarded by Store.writing.
	store    string // id of the shared store that this node has joined; empty: none
	head     headRecord
	headAt   int64 // revision of the head's entry
	waiting  map[string]*remoteCommit
	stash    []RemoteEntry // the first parts of a change of this node, applied with its last
	problems map[string]*RemoteProblem

	mu            sync.Mutex
	nodeInfo      func() RemoteNode // describes this node to the others; nil: not set yet
	notify        func(error)       // called when the shared store becomes unreachable, with the reason, and when it returns; may be nil
	ready         bool              // the shared objects here are those of revision
	applied       int64             // revision
	contact       time.Time         // when the shared store answered last
	nodes         map[string]*RemoteNode
	boot          string        // random ID of this process
	published     bool          // this process has written the entry of this node
	duplicateSeen time.Time     // when another process last wrote the entry of this node; zero: never
	latest        int64         // revision of the head
	changes       time.Time     // when latest last changed
	connections   int           // connections of this node, as last published
	publishedAt   time.Time     // when connections were last published
	failure       error         // why the objects may be outdated; nil: they are current, or no attempt was made yet
	since         time.Time     // when failure began
	changed       chan struct{} // closed when one of these members changes
}

// RemoteProblem is an entry of the shared store that this loxilb cannot read as an object. It
// leaves the entry alone, and keeps its last valid object with this path.
type RemoteProblem struct {
	Path   string
	Reason string
	Since  time.Time // when this node found it
	at     int64
	newer  bool // written by a newer loxilb: do not overwrite it
}

// maxProblems bounds the memory for entries that are not valid objects. Changes of objects with
// such an entry need its revision, so all entries of known kinds are remembered.
const maxProblems = 100

// RemoteStatus is the state of the shared store, as this node sees it.
type RemoteStatus struct {
	Servers       string
	Node          string
	Ready         bool      // the shared objects here are the current ones
	Revision      int64     // revision of the shared store that the objects are from; 0: unknown
	Contact       time.Time // when the shared store last answered; zero: never
	Since         time.Time // when Err began
	Err           error     // why the objects may be outdated; nil: they are current, or no attempt was made yet
	Problems      []RemoteProblem
	Latest        int64        // revision of the last change of a node that arrived here
	Nodes         []RemoteNode // by name; includes this node once it has joined
	DuplicateName bool         // another node has the name of this one
}

// Share keeps objects of shared kinds the same on all nodes that use remote. Call it before any
// other use of the store, and then Follow.
func (s *Store) Share(remote Remote, node string, join Join) error {
	sh := &sharing{
		remote: remote, node: node, boot: rand.Text(), join: join, log: s.log, loop: retry.New("shared objects follow the shared store", s.log),
		turn: make(chan struct{}, 1), waiting: map[string]*remoteCommit{}, problems: map[string]*RemoteProblem{}, nodes: map[string]*RemoteNode{}, changed: make(chan struct{}),
	}
	var err error
	if sh.store, err = s.joined(); err != nil {
		return fmt.Errorf("read the ID of the joined shared store: %w", err)
	}
	s.sharing = sh
	return nil
}

// SharedKind reports whether objects of a kind are the same on all nodes.
func (s *Store) SharedKind(kind string) bool {
	place := slices.Index(s.Snapshot().names, kind)
	return s.sharing != nil && place >= 0 && place < len(s.Snapshot().shared) && s.Snapshot().shared[place]
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
	out.Latest, out.Nodes, out.DuplicateName = sh.latest, sh.nodesNow(), sh.hasDuplicateName()
	return out, true
}

// reached records that the shared objects here are from a revision.
func (sh *sharing) reached(revision int64) {
	sh.loop.Worked()
	var notify func(error)
	sh.set(func() {
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

// answered records that the shared store has answered.
func (sh *sharing) answered() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.contact = time.Now()
}

// markStale records why the shared objects here may be outdated.
func (sh *sharing) markStale(err error) {
	var notify func(error)
	sh.set(func() {
		if sh.failure == nil {
			sh.since, notify = time.Now(), sh.notify
		}
		sh.ready, sh.failure = false, err
	})
	if notify != nil {
		notify(err)
	}
}

func (sh *sharing) set(change func()) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change()
	close(sh.changed)
	sh.changed = make(chan struct{})
}

// await calls check with mu held after each change of the state, and returns nil once it returns
// true. If the shared store is unreachable, it returns the reason.
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
