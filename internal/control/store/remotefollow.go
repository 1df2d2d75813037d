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
	maxFollowPause = time.Second // before it is tried again
	maxLag         = 5           // checks during which the watch may lag, before everything is read again
)

// foreignOwner is the author of changes that no loxilb made.
const foreignOwner = "etcd"

// errEmptied reports that the head of the shared store was deleted: the store has been emptied.
var errEmptied = errors.New("its entries were deleted")

// Follow keeps shared objects as the shared store has them, until ctx ends. Without a shared store
// it returns.
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

// followOnce reads everything, and then what changes, until that fails.
func (s *Store) followOnce(ctx context.Context) error {
	sh := s.sharing
	for {
		read, err := s.readRemote(ctx)
		if err != nil {
			return err
		}
		sh.answered()
		again, err := s.joinRemote(ctx, read)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		s.applyAll(read)
		sh.set(func() { sh.applied = 0 }) // it may have gone back: a copy was restored
		sh.reached(read.revision)
		return s.watchRemote(ctx, read.revision)
	}
}

// watchRemote applies what changes after a revision. It fails when the shared store does not answer
// for a while: a watch alone would wait silently until the network is back.
func (s *Store) watchRemote(ctx context.Context, after int64) error {
	watching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var helpers sync.WaitGroup
	helpers.Go(func() { s.checkRemote(watching, cancel) })
	helpers.Go(func() { s.sharing.showNode(watching) })
	err := s.sharing.remote.Watch(watching, after, s.applyChanges)
	if cause := context.Cause(watching); cause != nil {
		err = cause
	}
	cancel(err)
	helpers.Wait()
	return err
}

// checkRemote ends the watch when the shared store does not answer, or the watch has missed
// changes.
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
		last := sh.latest
		sh.mu.Unlock()
		revision, err := sh.remote.Revision(ctx, headPath)
		if err != nil {
			cancel(err)
			return
		}
		if revision < last {
			cancel(fmt.Errorf("it went back from revision %d to %d", last, revision))
			return
		}
		sh.answered()
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

// remoteRead is all of a shared store.
type remoteRead struct {
	revision int64
	head     *headRecord // nil: none
	headAt   int64
	rows     map[ID]remoteRow
	problems map[string]*RemoteProblem
	nodes    []RemoteEntry
}

func (s *Store) readRemote(ctx context.Context) (*remoteRead, error) {
	l := s.Snapshot().layout
	read := &remoteRead{rows: map[ID]remoteRow{}, problems: map[string]*RemoteProblem{}}
	var badHead error
	var err error
	read.revision, err = s.sharing.remote.Read(ctx, func(e RemoteEntry) {
		if e.Path == headPath {
			read.head, badHead = decodeHead(&e)
			read.headAt = e.Revision
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

// addProblem remembers an entry that is not an object. Of kinds that are not shared, it remembers
// few.
func (l *layout) addProblem(to map[string]*RemoteProblem, r remoteRow, p *RemoteProblem) {
	if isShared := r.place >= 0 && l.shared[r.place]; isShared || len(to) < maxProblems {
		to[p.Path] = p
	}
}

// applyAll replaces the shared objects by the result of a complete read. Objects whose entry cannot
// be read stay.
func (s *Store) applyAll(read *remoteRead) {
	s.writing.Lock()
	defer s.writing.Unlock()
	sh, now := s.sharing, s.Snapshot()
	isNew := read.head.Commit != sh.head.Commit
	sh.head, sh.headAt, sh.stash = *read.head, read.headAt, nil
	sh.setLatest(read.headAt)
	sh.forgetNodes(read.nodes)
	sh.takeNodes(read.nodes)
	sh.setProblems(func() { sh.problems = read.problems })
	rows := make([]remoteRow, 0, len(read.rows))
	for _, r := range read.rows {
		rows = append(rows, r)
	}
	for place := range now.tables {
		if !now.shared[place] {
			continue
		}
		for r := range now.rows(place, sortIndex, "") {
			id := ID{now.names[place], now.tables[place].keyOf(r)}
			_, exists := read.rows[id]
			if !exists && read.problems[pathOf(id)] == nil {
				rows = append(rows, remoteRow{id: id, placed: placed{place: place}})
			}
		}
	}
	slices.SortFunc(rows, func(a, b remoteRow) int { return compareIDs(a.id, b.id) })
	by, request := sh.byHead(), sh.waiting[sh.head.Commit]
	if isNew {
		by = sh.byNewHead()
	}
	if sh.head.More {
		request = nil
	}
	s.applyRows(rows, request, by)
}

// applyChanges makes the changes of one revision of the shared store.
func (s *Store) applyChanges(entries []RemoteEntry) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	sh, last := s.sharing, entries[len(entries)-1].Revision
	if entries = sh.takeNodes(entries); len(entries) == 0 {
		sh.reached(last)
		return nil
	}
	by := CommitOptions{Owner: foreignOwner, Author: Author{Who: foreignOwner}} // without a head, no loxilb made it
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
		sh.head, sh.headAt = *head, e.Revision
		sh.setLatest(e.Revision)
		by, request = sh.byNewHead(), sh.waiting[head.Commit]
	}
	sh.stash = append(sh.stash, entries...)
	if request != nil && sh.head.More {
		return nil
	}
	sh.reached(s.applyStash(request, by))
	return nil
}

// applyStash makes the changes that have arrived, and returns their last revision. The caller holds
// the writing lock.
func (s *Store) applyStash(request *remoteCommit, by CommitOptions) (revision int64) {
	sh, l := s.sharing, s.Snapshot().layout
	entries := sh.stash
	sh.stash = nil
	var rows []remoteRow
	sh.setProblems(func() {
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

func (sh *sharing) setProblems(change func()) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change()
}

// byHead returns the author of the change that the head describes.
func (sh *sharing) byHead() CommitOptions {
	by := CommitOptions{Owner: sh.head.Owner, Author: sh.head.Author}
	if by.Owner == "" {
		by.Owner = foreignOwner
	}
	if sh.head.Node != sh.node {
		by.From = "node " + sh.head.Node
	}
	return by
}

// byNewHead is byHead for a change that has just arrived. If it is of this node, its confirmation
// is due although no request waits for it: etcd may have been slower than the request.
func (sh *sharing) byNewHead() CommitOptions {
	by := sh.byHead()
	if sh.head.Node == sh.node {
		by.Confirm = sh.head.Confirm
	}
	return by
}

// applyRows commits objects of the shared store, and what else a request of this node changes. The
// caller holds the writing lock.
func (s *Store) applyRows(rows []remoteRow, request *remoteCommit, by CommitOptions) {
	if request != nil {
		by = request.by
	}
	before := s.Snapshot()
	tx := begin(before, by.Owner)
	tx.revisions = s.revisions
	var tagged []placed // unchanged objects in a later revision of the shared store
	for _, r := range rows {
		old := tx.row(r.place, sortOfRow(before.layout, r))
		switch {
		case r.row == nil:
			tx.forget(r.id)
		case old != nil && before.tables[r.place].same(old, r.row):
			if meta := old.header().Meta; meta.Remote != r.row.header().Remote {
				meta.Remote = r.row.header().Remote
				tagged = append(tagged, placed{r.place, before.tables[r.place].withMeta(old, meta)})
			}
		default:
			r.row.header().Version = tx.revision()
			tx.replace(r.placed)
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
		next.data.set(p.place, p.row, tx.keysOf(p.place))
	}
	s.adopt(before, next, c, by)
	if request != nil {
		request.finish(next, c)
	}
}

// sortOfRow returns the sort key of an object; "": it has none.
func sortOfRow(l *layout, r remoteRow) string {
	if r.row != nil {
		return r.row.header().sort
	}
	sort, _ := l.tables[r.place].sortOf(r.id.Key)
	return sort
}

// adopt publishes a change that was made elsewhere. It holds even if the disk refuses it: the
// shared store has it.
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
		s.revisions.close() // the next commit writes all that is remembered
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
