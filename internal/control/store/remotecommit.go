package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

const (
	// remoteWait is the timeout of a change of shared objects. It leaves time for the data
	// path: loxicmd waits for 10 s in total, and a large change may take 8 s.
	remoteWait = 4 * time.Second
	// conflictPause is how long a change waits for another node's change to arrive.
	conflictPause = 100 * time.Millisecond

	maxPartObjects = 100     // etcd refuses transactions of more than 128 operations
	maxPartBytes   = 1 << 20 // or more than 1.5 MiB
)

// errChangesShared aborts a commit to the local store because it changes shared objects.
var errChangesShared = errors.New("shared objects change")

// remoteCommit is a change of shared objects by this node.
type remoteCommit struct {
	id     string
	by     CommitOptions
	change *change // the change that the edit makes to base; nil: none
	base   *Snapshot
	done   chan struct{} // closed when the change is applied here

	revision uint64
	changed  []ID
}

// commitShared commits a change. If it contains shared objects, the shared store must accept it
// first. Nothing is locked meanwhile, so other objects of this node can change.
func (s *Store) commitShared(by CommitOptions, edit func(*Tx) error) (revision uint64, changed []ID, err error) {
	revision, changed, err = s.commitHere(by, func(tx *Tx) error {
		if err := edit(tx); err != nil {
			return err
		}
		if tx.changesShared() {
			return errChangesShared
		}
		return nil
	})
	if !errors.Is(err, errChangesShared) {
		return revision, changed, err
	}
	sh := s.sharing
	ctx, cancel := context.WithTimeout(context.Background(), remoteWait)
	defer cancel()
	if err := sh.await(ctx, func() bool { return sh.ready }); err != nil {
		return 0, nil, err
	}
	select {
	case sh.writeToken <- struct{}{}:
		defer func() { <-sh.writeToken }()
	case <-ctx.Done():
		return 0, nil, &unavailable{fmt.Sprintf("%s is slow: earlier changes of this node are still waiting for it", sh.remote)}
	}
	for attempts := 1; ; attempts++ {
		r, writes, err := s.prepareRemote(by, edit)
		if err != nil || r.change == nil {
			return r.revision, nil, err
		}
		behind, err := s.sendRemote(ctx, r, writes)
		if err != nil {
			return 0, nil, err
		}
		if behind == 0 {
			return r.revision, r.changed, nil
		}
		s.awaitConflict(ctx, behind)
		if ctx.Err() != nil {
			return 0, nil, fmt.Errorf("the configuration %w by other nodes at each of %d attempts: try again", ErrVersion, attempts)
		}
	}
}

// changesShared reports whether a commit would change shared objects.
func (tx *Tx) changesShared() bool {
	for at, after := range tx.touched {
		if tx.base.isShared(at.table) && !tx.same(at, tx.base.row(at.table, at.sortKey), after) {
			return true
		}
	}
	return false
}

// isShared reports whether the objects of a table are in the shared store.
func (l *layout) isShared(table int) bool { return table != l.unknownTable() && l.shared[table] }

// prepareRemote runs an edit, and returns its changes as one or more writes.
func (s *Store) prepareRemote(by CommitOptions, edit func(*Tx) error) (*remoteCommit, [][]RemoteEntry, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	sh := s.sharing
	r := &remoteCommit{id: rand.Text(), by: by, base: s.Snapshot(), done: make(chan struct{})}
	next, c, err := s.run(&request{CommitOptions: by, edit: edit}, r.base)
	if err != nil {
		return r, nil, err
	}
	r.revision, r.change = next.revision, c
	if c == nil {
		return r, nil, nil
	}
	changes, err := sh.changesOf(r.base, c)
	if err != nil {
		return r, nil, err
	}
	head := sh.head
	head.Uploading = false
	head.Node, head.Commit, head.Owner, head.Author, head.Confirm = sh.node, r.id, by.Owner, by.Author, by.Confirm
	if c.remembered != nil {
		head.Doing = c.remembered.Doing
	}
	var writes [][]RemoteEntry
	for part := range partsOf(changes) {
		writes = append(writes, part)
	}
	for i := range writes {
		head.More = i < len(writes)-1
		value, err := json.Marshal(head)
		if err != nil {
			return r, nil, err
		}
		writes[i] = append(writes[i], RemoteEntry{Path: headPath, Value: value, Revision: sh.headRevision})
	}
	sh.waiting[r.id] = r
	return r, writes, nil
}

// changesOf returns the changes of shared objects, with the revisions that their entries must have.
func (sh *sharing) changesOf(base *Snapshot, c *change) (list []RemoteEntry, err error) {
	for _, changed := range c.rows {
		if !base.isShared(changed.table) {
			continue
		}
		change := RemoteEntry{Path: pathOf(changed.id)}
		if changed.before != nil {
			change.Revision = changed.before.header().Remote
		}
		if p := sh.problems[change.Path]; p != nil {
			if p.newer {
				return nil, fmt.Errorf("%s %w: change it on a node that is updated", changed.id, ErrNewer)
			}
			change.Revision = p.revision
		}
		if changed.after != nil {
			if change.Value, err = base.encodeRow(tableRow{changed.table, changed.after}); err != nil {
				return nil, fmt.Errorf("%s: %w", changed.id, err)
			}
		}
		list = append(list, change)
	}
	return list, nil
}

// partsOf splits changes into parts that fit into one write together with the head.
func partsOf(changes []RemoteEntry) iter.Seq[[]RemoteEntry] {
	return func(yield func([]RemoteEntry) bool) {
		start, size := 0, 0
		for i := range changes {
			size += len(changes[i].Path) + len(changes[i].Value)
			if i > start && (i-start == maxPartObjects || size > maxPartBytes) {
				if !yield(append([]RemoteEntry(nil), changes[start:i]...)) {
					return
				}
				start, size = i, len(changes[i].Path)+len(changes[i].Value)
			}
		}
		if start < len(changes) {
			yield(append([]RemoteEntry(nil), changes[start:]...))
		}
	}
}

// sendRemote writes the parts of a change, and returns once it is applied here. If another node was
// faster, behind is the revision of its change, after which the edit must be run again; otherwise
// 0.
func (s *Store) sendRemote(ctx context.Context, r *remoteCommit, parts [][]RemoteEntry) (behind int64, err error) {
	sh := s.sharing
	defer s.forgetRemote(r)
	var at int64
	for i, part := range parts {
		if i > 0 {
			part[len(part)-1].Revision = at
		}
		revision, ok, err := sh.remote.Write(ctx, part)
		switch {
		case err != nil && i > 0:
			return 0, &unavailable{fmt.Sprintf("%s failed: %v; %d of %d parts of the change are stored", sh.remote, err, i, len(parts))}
		case errors.Is(err, ErrRefused):
			return 0, &unavailable{fmt.Sprintf("%s refuses the change: %v", sh.remote, err)}
		case err != nil:
			return 0, &unavailable{fmt.Sprintf("%s failed: %v; check whether the change is stored when it is back", sh.remote, err)}
		case !ok:
			return max(revision, 1), nil
		}
		at = revision
	}
	err = sh.await(ctx, func() bool { return r.isDone() || sh.applied >= at })
	if !r.isDone() {
		if err != nil {
			return 0, &unavailable{fmt.Sprintf("the change is stored in %s, but has not arrived here yet", sh.remote)}
		}
		s.findResult(r)
	}
	return 0, nil
}

func (r *remoteCommit) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// findResult sets the result of a change that arrived with a complete read, when the head was
// already that of another change. It also makes the change's local part. The revision of the result
// is the lowest version of the objects, so callers do not wait for a version that no object has.
func (s *Store) findResult(r *remoteCommit) {
	s.writing.Lock()
	if !r.isDone() {
		s.applyRows(nil, r, r.by)
	}
	s.writing.Unlock()
	now := s.Snapshot()
	r.revision, r.changed = now.revision, r.change.ids
	for _, id := range r.changed {
		if meta, ok := now.Meta(id); ok {
			r.revision = min(r.revision, meta.Version)
		}
	}
}

// forgetRemote ends the wait for a change, and applies parts of it that have arrived.
func (s *Store) forgetRemote(r *remoteCommit) {
	s.writing.Lock()
	defer s.writing.Unlock()
	delete(s.sharing.waiting, r.id)
	if len(s.sharing.stash) > 0 {
		s.applyStash(nil, s.sharing.newHeadAuthor())
	}
}

// awaitConflict waits until the change of another node has arrived.
func (s *Store) awaitConflict(ctx context.Context, revision int64) {
	sh := s.sharing
	ctx, cancel := context.WithTimeout(ctx, conflictPause)
	defer cancel()
	_ = sh.await(ctx, func() bool { return sh.applied >= revision }) // the next attempt reports an error
}

// addLocal makes the changes of local objects, unless these have changed since.
func (r *remoteCommit) addLocal(tx *Tx) {
	for _, changed := range r.change.rows {
		switch table := changed.table; {
		case r.base.isShared(table), tx.row(table, changed.sortKey()) != changed.before:
		case changed.after == nil:
			tx.remove(table, changed.before)
		case table == tx.base.unknownTable():
			tx.set(table, changed.after)
		default:
			meta := changed.after.header().Meta
			meta.Version = tx.revision()
			tx.set(table, tx.base.tables[table].withMeta(changed.after, meta))
		}
	}
}

// finish sets the result, and ends the wait for it.
func (r *remoteCommit) finish(now *Snapshot, c *change) {
	r.revision = now.revision
	if c != nil {
		r.changed = c.ids
	}
	close(r.done)
}
