package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	checkEvery     = time.Second // how often the shared store is checked
	maxFollowPause = time.Second // longest pause before the next try after a failure
	maxLag         = 5           // consecutive checks during which the watch may lag; then everything is read again
)

// foreignOwner is the author of changes that were not made by loxilb.
const foreignOwner = "etcd"

// errEmptied reports that the head of the shared store was deleted: the store has been emptied.
var errEmptied = errors.New("its entries were deleted")

// Follow applies the changes of the shared store to this node until ctx ends. Without a shared
// store, it returns immediately.
func (s *Store) Follow(ctx context.Context) {
	sh := s.sharing
	if sh == nil {
		return
	}
	for ctx.Err() == nil {
		err := s.followOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := min(sh.loop.Failed(err), maxFollowPause)
		if !errors.Is(err, errEmptied) {
			sh.markStale(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// followOnce reads all entries, and then watches for changes until that fails.
func (s *Store) followOnce(ctx context.Context) error {
	sh := s.sharing
	for {
		read, err := s.readRemote(ctx)
		if err != nil {
			return err
		}
		sh.recordContact()
		again, err := s.joinRemote(ctx, read)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		s.applyAll(read)
		sh.update(func() { sh.applied = 0 }) // the revision is lower if a backup was restored
		sh.markCurrent(read.revision)
		return s.watchRemote(ctx, read.revision)
	}
}

// watchRemote applies the changes after a revision. It also checks that the shared store answers: a
// watch alone would wait silently until the network is back.
func (s *Store) watchRemote(ctx context.Context, after int64) error {
	watching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var helpers sync.WaitGroup
	helpers.Go(func() { s.checkRemote(watching, cancel) })
	helpers.Go(func() { s.sharing.publishNode(watching) })
	err := s.sharing.remote.Watch(watching, after, s.applyChanges)
	if cause := context.Cause(watching); cause != nil {
		err = cause
	}
	cancel(err)
	helpers.Wait()
	return err
}

// checkRemote ends the watch if the shared store does not answer, was restored from a backup, or
// the watch has missed changes.
func (s *Store) checkRemote(ctx context.Context, cancel context.CancelCauseFunc) {
	sh := s.sharing
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for behind := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sh.mu.Lock()
		lastHead, last := sh.latest, sh.applied
		sh.mu.Unlock()
		revision, latest, err := sh.remote.Revision(ctx, headPath)
		switch {
		case err != nil:
			cancel(err)
			return
		case revision < lastHead:
			cancel(fmt.Errorf("its revision decreased from %d to %d", lastHead, revision))
			return
		case latest < last:
			// The head may be the same, as it was changed before the backup. The watch
			// waits for revisions after last, and would miss all until then.
			cancel(fmt.Errorf("its revision decreased from %d to %d", last, latest))
			return
		}
		sh.recordContact()
		sh.mu.Lock()
		late := sh.applied < revision
		sh.mu.Unlock()
		if behind++; !late {
			behind = 0
		}
		if behind > maxLag {
			cancel(fmt.Errorf("changes up to revision %d have not arrived", revision))
			return
		}
	}
}

// remoteRead is the content of a shared store.
type remoteRead struct {
	revision     int64
	head         *headRecord // nil: none
	headRevision int64
	rows         map[ID]remoteRow
	problems     map[string]*RemoteProblem
	nodes        []RemoteEntry
}

func (s *Store) readRemote(ctx context.Context) (*remoteRead, error) {
	l := s.Snapshot().layout
	read := &remoteRead{rows: map[ID]remoteRow{}, problems: map[string]*RemoteProblem{}}
	var badHead error
	var err error
	read.revision, err = s.sharing.remote.Read(ctx, func(e RemoteEntry) {
		if e.Path == headPath {
			read.head, badHead = decodeHead(&e)
			read.headRevision = e.Revision
		}
		if strings.HasPrefix(e.Path, nodePrefix) {
			read.nodes = append(read.nodes, e)
		}
		if ignoredPath(e.Path) {
			return
		}
		row, problem := l.decodeEntry(&e)
		if problem != nil {
			l.addProblem(read.problems, row, problem)
			return
		}
		read.rows[row.id] = row
	})
	return read, errors.Join(err, badHead)
}

// addProblem adds an entry that is not an object to a map. maxProblems limits the number of entries
// whose kind is not shared.
func (l *layout) addProblem(to map[string]*RemoteProblem, r remoteRow, p *RemoteProblem) {
	if isShared := r.table >= 0 && l.shared[r.table]; isShared || len(to) < maxProblems {
		to[p.Path] = p
	}
}

// applyAll replaces the shared objects by the result of a complete read. It keeps objects whose
// entry cannot be decoded.
func (s *Store) applyAll(read *remoteRead) {
	s.writing.Lock()
	defer s.writing.Unlock()
	sh, now := s.sharing, s.Snapshot()
	isNew := read.head.Commit != sh.head.Commit
	sh.head, sh.headRevision, sh.stash = *read.head, read.headRevision, nil
	sh.setLatest(read.headRevision)
	sh.forgetNodes(read.nodes)
	sh.recordNodes(read.nodes)
	sh.locked(func() { sh.problems = read.problems })
	rows := make([]remoteRow, 0, len(read.rows))
	for _, r := range read.rows {
		rows = append(rows, r)
	}
	for table := range now.tables {
		if !now.shared[table] {
			continue
		}
		for r := range now.rows(table, primaryIndex, "") {
			id := now.idOf(tableRow{table, r})
			_, exists := read.rows[id]
			if !exists && read.problems[pathOf(id)] == nil {
				rows = append(rows, remoteRow{id: id, tableRow: tableRow{table: table}})
			}
		}
	}
	slices.SortFunc(rows, func(a, b remoteRow) int { return compareIDs(a.id, b.id) })
	by, request := sh.headAuthor(), sh.waiting[sh.head.Commit]
	if isNew {
		by = sh.newHeadAuthor()
	}
	if sh.head.More {
		request = nil
	}
	s.applyRows(rows, request, by)
}

// applyChanges applies the changes of one revision of the shared store.
func (s *Store) applyChanges(entries []RemoteEntry) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	sh, last := s.sharing, entries[len(entries)-1].Revision
	if entries = sh.recordNodes(entries); len(entries) == 0 {
		sh.markCurrent(last)
		return nil
	}
	by := CommitOptions{Owner: foreignOwner, Author: Author{Who: foreignOwner}} // unless the head changes too
	var request *remoteCommit
	for i := range entries {
		e := &entries[i]
		if e.Path != headPath {
			continue
		}
		head, err := decodeHead(e)
		if err != nil {
			return err
		}
		if head == nil {
			return errEmptied
		}
		sh.head, sh.headRevision = *head, e.Revision
		sh.setLatest(e.Revision)
		by, request = sh.newHeadAuthor(), sh.waiting[head.Commit]
	}
	sh.stash = append(sh.stash, entries...)
	if request != nil && sh.head.More {
		return nil
	}
	sh.markCurrent(s.applyStash(request, by))
	return nil
}

// applyStash applies the changes in the stash, and returns their last revision. The caller holds
// the writing lock.
func (s *Store) applyStash(request *remoteCommit, by CommitOptions) (revision int64) {
	sh, l := s.sharing, s.Snapshot().layout
	entries := sh.stash
	sh.stash = nil
	var rows []remoteRow
	sh.locked(func() {
		for i := range entries {
			revision = max(revision, entries[i].Revision)
			if ignoredPath(entries[i].Path) {
				continue
			}
			delete(sh.problems, entries[i].Path)
			row, problem := l.decodeEntry(&entries[i])
			switch {
			case problem == nil:
				rows = append(rows, row)
			case entries[i].Value != nil:
				l.addProblem(sh.problems, row, problem)
			}
		}
	})
	s.applyRows(rows, request, by)
	return revision
}

// locked runs change with mu held.
func (sh *sharing) locked(change func()) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change()
}

// headAuthor returns the author of the change that the head describes.
func (sh *sharing) headAuthor() CommitOptions {
	by := CommitOptions{Owner: sh.head.Owner, Author: sh.head.Author}
	if by.Owner == "" {
		by.Owner = foreignOwner
	}
	if sh.head.Node != sh.node {
		by.From = "node " + sh.head.Node
	}
	return by
}

// newHeadAuthor is byHead for a change that has just arrived. If it is of this node, its
// confirmation is due although no request waits for it: etcd may have been slower than the request.
func (sh *sharing) newHeadAuthor() CommitOptions {
	by := sh.headAuthor()
	if sh.head.Node == sh.node {
		by.Confirm = sh.head.Confirm
	}
	return by
}

// applyRows commits objects of the shared store, together with the local objects that a request of
// this node changes. The caller holds the writing lock.
func (s *Store) applyRows(rows []remoteRow, request *remoteCommit, by CommitOptions) {
	if request != nil {
		by = request.by
	}
	before := s.Snapshot()
	tx := newTx(before, by.Owner)
	tx.revisions = s.revisions
	var tagged []tableRow // unchanged objects with a new revision in the shared store
	for _, r := range rows {
		old := tx.row(r.table, sortKeyOfRow(before.layout, r))
		switch {
		case r.row == nil:
			tx.forget(r.id)
		case old != nil && before.tables[r.table].same(old, r.row):
			if meta := old.header().Meta; meta.Remote != r.row.header().Remote {
				meta.Remote = r.row.header().Remote
				tagged = append(tagged, tableRow{r.table, before.tables[r.table].withMeta(old, meta)})
			}
		default:
			r.row.header().Version = tx.revision()
			tx.replace(r.tableRow)
		}
	}
	if request != nil {
		request.addLocal(tx)
		tx.resolves = request.change.resolves
	}
	next, c := tx.finish()
	if c == nil && len(tagged) > 0 {
		same := *before
		same.data, next = tx.data, &same
	}
	for _, p := range tagged {
		next.data.set(p.table, p.row, tx.keysOf(p.table))
	}
	s.adopt(before, next, c, by)
	if request != nil {
		request.finish(next, c)
	}
}

// sortKeyOfRow returns the sort key of an object; "": it has none.
func sortKeyOfRow(l *layout, r remoteRow) string {
	if r.row != nil {
		return r.row.header().sortKey
	}
	sortKey, _ := l.tables[r.table].sortKeyOf(r.id.Key)
	return sortKey
}

// adopt publishes a change that the shared store has accepted. It is published even if it cannot be
// written to disk.
func (s *Store) adopt(before, next *Snapshot, c *change, by CommitOptions) {
	if c == nil {
		if next != before {
			s.publish(next, nil)
		}
		return
	}
	for _, t := range before.tables {
		if err := t.check(before, next, c.ids); err != nil {
			s.log.Warn("a change of another node exceeds this node's limits", "error", err)
		}
	}
	if s.revisions != nil {
		var err error
		if c.remembered, err = revisionOf(before.layout, c, by); err != nil {
			s.log.Error("revision not written: rollback to it will not be possible after a restart", "file", revisionsName, "error", err)
		} else {
			s.revisions.pending = append(s.revisions.pending, c.remembered)
		}
	}
	err := s.persist(before, []*change{c})
	if err != nil && s.revisions != nil {
		s.revisions.close() // the next commit rewrites the file
	}
	s.publish(next, []*change{c})
	switch {
	case err == nil && s.disk != nil:
		s.disk.compactIfDue(next)
	case err != nil && !s.disk.behind:
		s.disk.behind = true
		s.writeLater(err)
	}
}
