// Package store keeps the desired state: which services there are, and who wrote each. Changes come in
// transactions, all or nothing, that are on disk before Commit returns; readers take immutable snapshots, and
// follow the changes between them.
package store

import (
	"errors"
	"log/slog"
	"sync"

	"loxilb/internal/lb"
)

// The refusals of a commit or of Open; the errors that wrap them are whole sentences.
var (
	ErrOwner    = errors.New("belongs to another owner")
	ErrNotFound = errors.New("does not exist")
	ErrLimit    = errors.New("is over the limit")
	ErrInUse    = errors.New("is in use by another loxilb")
	ErrNewer    = errors.New("was written by a newer loxilb")
	ErrClosed   = errors.New("the store is closed")
)

// Store is the desired state. All methods may be called from many goroutines.
type Store struct {
	log *slog.Logger

	queue   sync.Mutex // guards waiting
	waiting []*request

	writing sync.Mutex // held while a batch is committed; guards disk, closed and the requests of the batch
	disk    *disk      // nil: memory only
	closed  bool

	view    sync.RWMutex // guards what follows; held for moments only
	head    *Snapshot
	history history
	changed chan struct{} // closed when head is replaced
}

// Open reads the state in directory dir, makes the directory if there is none, and keeps it locked until Close.
// With dir "" the state lives in memory only. Damaged files are set aside, and what could be read of them is
// kept; a directory in use (ErrInUse) or written by a newer version (ErrNewer) is refused and left as it is.
func Open(dir string, log *slog.Logger) (*Store, error) {
	s := &Store{log: log, head: emptySnapshot(), changed: make(chan struct{})}
	if dir != "" {
		disk, head, err := openDisk(dir, log)
		if err != nil {
			return nil, err
		}
		s.disk, s.head = disk, head
	}
	s.history.reset(s.head.revision)
	return s, nil
}

// Close waits for a commit and for files being written, and unlocks the directory. Commits after it are refused;
// snapshots stay good.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed || s.disk == nil {
		s.closed = true
		return nil
	}
	s.closed = true
	return s.disk.close()
}

// Snapshot is the current state. It costs nothing, and never changes.
func (s *Store) Snapshot() *Snapshot {
	s.view.RLock()
	defer s.view.RUnlock()
	return s.head
}

// Changed returns a channel that is closed when the state changes from what it is now. Take the channel first and
// the snapshot after it: so no change falls between.
func (s *Store) Changed() <-chan struct{} {
	s.view.RLock()
	defer s.view.RUnlock()
	return s.changed
}

// Since returns the current snapshot, and the keys of the services that were put or deleted after revision rev,
// in order and each once. ok is false when that is too long ago, or a revision that never was: compare
// everything then.
func (s *Store) Since(rev uint64) (now *Snapshot, keys []lb.Key, ok bool) {
	s.view.RLock()
	defer s.view.RUnlock()
	keys, ok = s.history.since(rev)
	return s.head, keys, ok
}

// publish makes the changes of a batch visible, together.
func (s *Store) publish(head *Snapshot, changes []*change) {
	s.view.Lock()
	defer s.view.Unlock()
	s.head = head
	for _, c := range changes {
		s.history.add(c.revision, c.keys())
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
