// Package store keeps desired state: objects of any kind by key, with their owners. Changes are
// atomic transactions that are on disk before Commit returns. Readers use immutable snapshots, and
// are notified of the changes between them. A Kind defines its objects; package desired has the
// kinds of loxilb.
package store

import (
	"errors"
	"log/slog"
	"sync"

	"loxilb/internal/host/retry"
)

// The reasons for which Commit or Open refuses. Errors that wrap them are whole sentences.
var (
	ErrOwner    = errors.New("belongs to another owner")
	ErrNotFound = errors.New("does not exist")
	ErrLimit    = errors.New("is over the limit")
	ErrVersion  = errors.New("has changed")
	ErrInUse    = errors.New("is in use by another loxilb")
	ErrNewer    = errors.New("was written by a newer loxilb")
	ErrRefused  = errors.New("is refused by the shared store")
	ErrClosed   = errors.New("the store is closed")

	// ErrUnavailable is returned by changes of shared objects while the shared store is
	// unreachable.
	ErrUnavailable = errors.New("is not available")
)

// Store is a state and its history. Its methods are safe for concurrent use.
type Store struct {
	log *slog.Logger

	queue   sync.Mutex // guards waiting
	waiting []*request

	writing   sync.Mutex // held while a batch is committed; guards the disk, closed and the batch's requests
	disk      *disk      // nil: the state is only in memory
	closed    bool
	revisions *revisionLog

	sharing *sharing // the shared store; nil: there is none

	urgentWrites *retry.Loop // retries to write urgent changes that could not be written

	view    sync.RWMutex // guards the following members; held only briefly
	head    *Snapshot
	history history
	changed chan struct{} // closed when head is replaced
}

// Open reads the state in directory dir, which it creates if it is missing, and locks the directory
// until Close. The tables belong to the store from then on. With dir "" the state is only in
// memory. Open renames damaged files, and keeps their readable part. It refuses, and does not
// change, a directory that is in use (ErrInUse) or was written by a newer version (ErrNewer).
func Open(dir string, log *slog.Logger, tables ...AnyTable) (*Store, error) {
	s, err := open(osFiles{}, dir, log, tables)
	if err != nil {
		return nil, err
	}
	s.loadRevisions()
	return s, nil
}

func open(files fileSystem, dir string, log *slog.Logger, tables []AnyTable) (*Store, error) {
	head, err := emptySnapshot(tables)
	if err != nil {
		return nil, err
	}
	s := &Store{log: log, head: head, changed: make(chan struct{}), urgentWrites: retry.New("changes of roles are stored", log)}
	if dir != "" {
		if s.disk, s.head, err = openDisk(files, dir, head, log); err != nil {
			return nil, err
		}
		reportUnknown(s.head, log)
	}
	s.history.reset(s.head.revision)
	return s, nil
}

// Close waits for the current commit and for files that are being written, and unlocks the
// directory. Later commits are refused; snapshots stay valid.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed || s.disk == nil {
		s.closed = true
		return nil
	}
	s.closed = true
	var behind error
	if s.disk.behind {
		behind = s.disk.catchUp(s.Snapshot())
	}
	if s.revisions != nil {
		s.revisions.close() // its content was synced, or its loss was logged
	}
	return errors.Join(behind, s.disk.close())
}

// Snapshot returns the current state. It costs nothing, and never changes.
func (s *Store) Snapshot() *Snapshot {
	s.view.RLock()
	defer s.view.RUnlock()
	return s.head
}

// Changed returns a channel that is closed when the state next changes. To miss no change, get the
// channel before the snapshot.
func (s *Store) Changed() <-chan struct{} {
	s.view.RLock()
	defer s.view.RUnlock()
	return s.changed
}

// Since returns the current snapshot, and the objects that were put or deleted after revision rev,
// each once, ordered by kind and key. ok is false if rev is too long ago or does not exist: then
// the caller must compare all objects.
func (s *Store) Since(rev uint64) (now *Snapshot, changed []ID, ok bool) {
	s.view.RLock()
	defer s.view.RUnlock()
	changed, ok = s.history.since(rev)
	return s.head, changed, ok
}

// publish makes the changes of a batch visible atomically.
func (s *Store) publish(head *Snapshot, changes []*change) {
	s.view.Lock()
	defer s.view.Unlock()
	s.head = head
	if s.revisions != nil {
		s.revisions.committed()
	}
	for _, c := range changes {
		s.history.add(c.revision, c.ids)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
