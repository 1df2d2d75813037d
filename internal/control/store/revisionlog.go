package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// revisionsName is the file of revisions. It has one line for each, which is written before the
// commit is written to the journal. A line without a number confirms an earlier revision. If the
// file is damaged, only rollbacks to its revisions are impossible, so most commits do not wait for
// it. Earlier versions of loxilb ignore it.
const revisionsName = "revisions" + fileSuffix

// revisionLog has the remembered revisions. Store.writing guards it; list is also guarded by
// Store.view, for readers.
type revisionLog struct {
	log           *slog.Logger
	disk          *disk       // nil: memory only
	file          file        // nil: rewritten with the next commit
	size          int64       // size of the undamaged part of the file
	committedSize int64       // size before the batch
	lines         int         // lines in the file
	limit         int64       // size at which the file is rewritten
	list          []*Revision // the last revisions without a gap; before these, there may be one awaiting confirmation
	pending       []*Revision // revisions of the batch that is being committed; they follow list
}

// loadRevisions reads the revisions up to the current one.
func (s *Store) loadRevisions() {
	l := &revisionLog{log: s.log, disk: s.disk}
	s.revisions = l
	if s.disk == nil {
		return
	}
	found, err := l.read()
	damaged := err != nil && !errors.Is(err, fs.ErrNotExist)
	if damaged {
		s.log.Warn("earlier revisions cannot be read: rollback to them is not possible", "file", revisionsName, "error", err)
	}
	l.list = found
	for n := len(l.list); n > 0 && l.list[n-1].Number > s.head.revision; n-- {
		l.list = l.list[:n-1] // the journal does not have its commit
	}
	for _, r := range l.list {
		clearDeadline(l.list, r.Resolves, false) // after the loop above: failed commits resolve nothing
	}
	if w := unconfirmed(l.list); w != nil && damaged {
		s.log.Warn("an unconfirmed change will not be rolled back: the file of revisions is damaged", "file", revisionsName, "revision", w.Number)
		clearDeadline(l.list, w.Number, false)
	}
	if n := len(l.list); n > 0 && l.list[n-1].Number != s.head.revision {
		s.log.Warn("revisions are missing: rollback before them is not possible", "revision", s.head.revision)
		l.forget(n)
	}
	l.trim()
}

// read returns the revisions of the file up to the first damaged line.
func (l *revisionLog) read() (list []*Revision, err error) {
	content, err := l.disk.files.ReadFile(filepath.Join(l.disk.path, revisionsName))
	if err != nil {
		return nil, err
	}
	for len(content) > 0 {
		end := slices.Index(content, '\n') + 1
		if end == 0 {
			break // a crash interrupted the write
		}
		body, err := lineBody(content[:end])
		if err != nil {
			return list, err
		}
		r := &Revision{}
		if err := json.Unmarshal(body, r); err != nil {
			return list, err
		}
		content = content[end:]
		if r.Number == 0 {
			clearDeadline(list, r.Resolves, true)
			continue
		}
		for n := len(list); n > 0 && list[n-1].Number >= r.Number; n-- {
			list = list[:n-1] // this commit failed, and r is its repetition
		}
		list = append(list, r)
	}
	return list, nil
}

// clearDeadline ends the wait of a revision for confirmation: it was confirmed or rolled back.
func clearDeadline(list []*Revision, number uint64, confirmed bool) {
	for i, r := range list {
		if number != 0 && r.Number == number {
			c := *r // readers may use it
			c.Confirm, c.Confirmed = time.Time{}, c.Confirmed || confirmed
			list[i] = &c
		}
	}
}

// trim removes revisions that exceed the limits or precede a gap.
func (l *revisionLog) trim() {
	first, size := lastRun(l.list), 0
	for i := len(l.list) - 1; i >= first; i-- {
		if size += l.list[i].size(); len(l.list)-i > maxRevisions || size > maxUndo {
			first = i + 1
		}
	}
	l.forget(first)
}

// forget removes the first revisions, but keeps one that awaits confirmation: unlike RollBackTo,
// Undo does not need the revisions after it.
func (l *revisionLog) forget(first int) {
	if first == 0 {
		return
	}
	var kept []*Revision
	if w := unconfirmed(l.list[:first]); w != nil {
		kept = append(kept, w)
	}
	l.list = append(kept, l.list[first:]...)
}

// lastRun returns the index of the first of the last revisions without a gap.
func lastRun(list []*Revision) int {
	first := max(len(list)-1, 0)
	for first > 0 && list[first-1].Number+1 == list[first].Number {
		first--
	}
	return first
}

func (l *revisionLog) find(number uint64) *Revision {
	for _, list := range [][]*Revision{l.list, l.pending} {
		if i, found := slices.BinarySearchFunc(list, number, func(r *Revision, n uint64) int { return cmp.Compare(r.Number, n) }); found {
			return list[i]
		}
	}
	return nil
}

// available returns the range of the revisions without a gap up to the current one.
func (l *revisionLog) available(now uint64) string {
	all := append(slices.Clone(l.list), l.pending...)
	if len(all) == 0 || all[len(all)-1].Number != now {
		return "none"
	}
	if first := all[lastRun(all)].Number; first != now {
		return fmt.Sprintf("%d-%d", first, now)
	}
	return strconv.FormatUint(now, 10)
}

// waiting returns the revision awaiting confirmation, including those of the batch that is being
// committed. The caller holds the writing lock.
func (l *revisionLog) waiting() *Revision { return cmp.Or(unconfirmed(l.pending), unconfirmed(l.list)) }

func unconfirmed(list []*Revision) *Revision {
	if i := slices.IndexFunc(list, func(r *Revision) bool { return !r.Confirm.IsZero() }); i >= 0 {
		return list[i]
	}
	return nil
}

// write writes the batch's revisions to the file, before the journal has their commits. The
// returned function waits until they are on disk. A failed write is an error if a revision needs
// confirmation or resolves another one, which must not be lost. Otherwise it is only logged.
func (l *revisionLog) write() (wait func() error, err error) {
	wait = func() error { return nil }
	if l.disk == nil || len(l.pending) == 0 {
		return wait, nil
	}
	durable := slices.ContainsFunc(l.pending, func(r *Revision) bool { return !r.Confirm.IsZero() || r.Resolves != 0 })
	if err = l.add(l.pending...); err == nil && durable {
		err = l.file.Datasync()
	}
	switch {
	case err != nil && durable:
		l.reopenLater(err)
		return wait, fmt.Errorf("write the state that a rollback would restore: %w", err)
	case err != nil:
		l.reopenLater(err)
		return wait, nil
	case durable:
		return wait, nil
	}
	done := make(chan error, 1)
	go func() { done <- l.file.Datasync() }()
	return func() error { return <-done }, nil
}

// add appends lines. Before, it rewrites the file if it is closed or too large.
func (l *revisionLog) add(list ...*Revision) error {
	if l.file == nil || l.lines > 4*maxRevisions || l.size > l.limit {
		if err := l.rewrite(); err != nil {
			return err
		}
	}
	l.committedSize = l.size
	return l.append(list...)
}

// confirm adds a line that confirms a revision, and returns when it is on disk.
func (l *revisionLog) confirm(number uint64) error {
	err := l.add(&Revision{Resolves: number})
	if err == nil {
		err = l.file.Datasync()
	}
	if err != nil {
		l.reopenLater(err)
	}
	return err
}

// revert removes the lines of the last write, whose commits the journal did not accept. Without
// pending revisions, write has written none.
func (l *revisionLog) revert() {
	if l.file == nil || len(l.pending) == 0 {
		return
	}
	l.size = l.committedSize
	if err := l.file.Truncate(l.committedSize); err != nil {
		l.reopenLater(err)
	}
}

// reopenLater logs an error of the file, and makes the next commit rewrite it.
func (l *revisionLog) reopenLater(err error) {
	l.log.Error("revision not written: rollback to it will not be possible after a restart", "file", revisionsName, "error", err)
	l.close()
}

// close closes the file. The next commit rewrites it.
func (l *revisionLog) close() {
	if l.file != nil {
		l.file.Close()
	}
	l.file = nil
}

// rewrite writes a new file of the remembered revisions. The caller has called disk.catchUp:
// before, the directory may have damaged files that a full disk kept from being set aside.
func (l *revisionLog) rewrite() error {
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.size, l.lines = nil, 0, 0
	err := l.disk.replaceFile(revisionsName, func(f file) error {
		l.file = f
		err := l.append(l.list...)
		l.file = nil
		return err
	})
	if err == nil {
		l.file, err = l.disk.files.Open(filepath.Join(l.disk.path, revisionsName))
	}
	l.limit = max(4*maxUndo, 2*l.size)
	return err
}

func (l *revisionLog) append(list ...*Revision) error {
	var lines []byte
	for _, r := range list {
		line, err := encodeLine(r)
		if err != nil {
			return err
		}
		lines = append(lines, line...)
	}
	if _, err := l.file.WriteAt(lines, l.size); err != nil {
		return err
	}
	l.size += int64(len(lines))
	l.lines += len(list)
	return nil
}

// committed adds the batch's revisions to the list, after its commits are on disk. The caller holds
// Store.view.
func (l *revisionLog) committed() {
	for _, r := range l.pending {
		clearDeadline(l.list, r.Resolves, false)
		l.list = append(l.list, r)
	}
	l.pending = nil
	l.trim()
}

// Revisions returns the remembered revisions, the last one first.
func (s *Store) Revisions() []Revision {
	s.view.RLock()
	defer s.view.RUnlock()
	list := make([]Revision, 0, len(s.revisions.list))
	for _, r := range slices.Backward(s.revisions.list) {
		list = append(list, *r)
	}
	return list
}

// Waiting returns the revision that waits for confirmation; false: there is none.
func (s *Store) Waiting() (Revision, bool) {
	s.view.RLock()
	defer s.view.RUnlock()
	if r := unconfirmed(s.revisions.list); r != nil {
		return *r, true
	}
	return Revision{}, false
}

// Confirm confirms a revision, or the one awaiting confirmation if number is 0. The confirmation is
// on disk when Confirm returns.
func (s *Store) Confirm(number uint64) (uint64, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	r := s.revisions.waiting()
	switch {
	case r == nil && number == 0:
		return 0, fmt.Errorf("no revision %w", ErrPending)
	case r == nil || number != 0 && r.Number != number:
		return 0, fmt.Errorf("revision %d %w", number, ErrConfirmed)
	}
	if l := s.revisions; l.disk != nil {
		err := l.disk.catchUp(s.Snapshot())
		if err == nil {
			err = l.confirm(r.Number)
		}
		if err != nil {
			return 0, fmt.Errorf("write the confirmation of revision %d: %w", r.Number, err)
		}
	}
	s.view.Lock()
	defer s.view.Unlock()
	clearDeadline(s.revisions.list, r.Number, true)
	s.revisions.trim()
	return r.Number, nil
}
