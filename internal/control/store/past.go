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

// pastName is the file of revisions, one per line, appended before the journal gets their commits.
// A line that only resolves ends the deadline of an earlier revision. If part of the file is lost,
// only rollbacks to its revisions are lost. So it does not delay commits, and earlier versions of
// loxilb ignore it.
const pastName = "revisions" + fileSuffix

// past has the remembered revisions. Store.writing guards it, and Store.view guards what readers
// use.
type past struct {
	log     *slog.Logger
	disk    *disk       // nil: memory only
	file    file        // nil: rewritten with the next commit
	size    int64       // of the file's good part
	good    int64       // size before the batch
	lines   int         // in the file
	limit   int64       // size at which the file is rewritten
	list    []*Revision // the last ones without a gap, preceded by revisions awaiting confirmation
	pending []*Revision // of the batch that is being committed; they follow list
}

// remember reads the revisions up to the current one.
func (s *Store) remember() {
	p := &past{log: s.log, disk: s.disk}
	s.past = p
	if s.disk == nil {
		return
	}
	found, err := p.read()
	damaged := err != nil && !errors.Is(err, fs.ErrNotExist)
	if damaged {
		s.log.Warn("earlier revisions cannot be read: rollback to them is not possible", "file", pastName, "error", err)
	}
	p.list = found
	for n := len(p.list); n > 0 && p.list[n-1].Number > s.head.revision; n-- {
		p.list = p.list[:n-1] // its commit was never made
	}
	for _, r := range p.list {
		clearDeadline(p.list, r.Resolves, false) // of successful commits: failed ones have undone nothing
	}
	if w := unconfirmed(p.list); w != nil && damaged {
		s.log.Warn("a change that waited for confirmation stays: whether it was confirmed cannot be read", "file", pastName, "revision", w.Number)
		clearDeadline(p.list, w.Number, false)
	}
	if n := len(p.list); n > 0 && p.list[n-1].Number != s.head.revision {
		s.log.Warn("revisions are missing: rollback before them is not possible", "revision", s.head.revision)
		p.forget(n)
	}
	p.trim()
}

// read reads lines up to the first damaged one.
func (p *past) read() (list []*Revision, err error) {
	content, err := p.disk.files.ReadFile(filepath.Join(p.disk.path, pastName))
	if err != nil {
		return nil, err
	}
	for len(content) > 0 {
		end := slices.Index(content, '\n') + 1
		if end == 0 {
			break // the end of a commit that was never made
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
			list = list[:n-1] // of a commit that failed, and was repeated
		}
		list = append(list, r)
	}
	return list, nil
}

// clearDeadline notes that a revision no longer waits: it was confirmed, or undone.
func clearDeadline(list []*Revision, number uint64, confirmed bool) {
	for i, r := range list {
		if number != 0 && r.Number == number {
			c := *r // readers may use it
			c.Confirm, c.Confirmed = time.Time{}, c.Confirmed || confirmed
			list[i] = &c
		}
	}
}

// trim forgets revisions beyond the limits or before a gap.
func (p *past) trim() {
	first, size := lastRun(p.list), 0
	for i := len(p.list) - 1; i >= first; i-- {
		if size += p.list[i].size(); len(p.list)-i > maxRevisions || size > maxUndo {
			first = i + 1
		}
	}
	p.forget(first)
}

// forget removes the first revisions, except revisions awaiting confirmation, whose rollback does
// not need later ones.
func (p *past) forget(first int) {
	if first == 0 {
		return
	}
	var kept []*Revision
	if w := unconfirmed(p.list[:first]); w != nil {
		kept = append(kept, w)
	}
	p.list = append(kept, p.list[first:]...)
}

// lastRun returns where the last revisions without a gap begin.
func lastRun(list []*Revision) int {
	first := max(len(list)-1, 0)
	for first > 0 && list[first-1].Number+1 == list[first].Number {
		first--
	}
	return first
}

func (p *past) find(number uint64) *Revision {
	for _, list := range [][]*Revision{p.list, p.pending} {
		if i, found := slices.BinarySearchFunc(list, number, func(r *Revision, n uint64) int { return cmp.Compare(r.Number, n) }); found {
			return list[i]
		}
	}
	return nil
}

// available names the revisions without a gap up to the present one.
func (p *past) available(now uint64) string {
	all := append(slices.Clone(p.list), p.pending...)
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
func (p *past) waiting() *Revision { return cmp.Or(unconfirmed(p.pending), unconfirmed(p.list)) }

func unconfirmed(list []*Revision) *Revision {
	if i := slices.IndexFunc(list, func(r *Revision) bool { return !r.Confirm.IsZero() }); i >= 0 {
		return list[i]
	}
	return nil
}

// write writes the batch's revisions to the file, before the journal has their commits. The
// returned function waits until they are on disk. Revisions that need confirmation, or that confirm
// or undo one, must not be lost: a failure is an error for them, otherwise a line in the log.
func (p *past) write() (wait func() error, err error) {
	wait = func() error { return nil }
	if p.disk == nil || len(p.pending) == 0 {
		return wait, nil
	}
	confirm := slices.ContainsFunc(p.pending, func(r *Revision) bool { return !r.Confirm.IsZero() || r.Resolves != 0 })
	if p.file == nil || p.lines > 4*maxRevisions || p.size > p.limit {
		err = p.rewrite()
	}
	p.good = p.size
	if err == nil {
		err = p.append(p.pending...)
	}
	if err == nil && confirm {
		err = p.file.Datasync()
	}
	switch {
	case err != nil && confirm:
		p.reopenLater(err)
		return wait, fmt.Errorf("write the state that a rollback would restore: %w", err)
	case err != nil:
		p.reopenLater(err)
		return wait, nil
	case confirm:
		return wait, nil
	}
	done := make(chan error, 1)
	go func() { done <- p.file.Datasync() }()
	return func() error { return <-done }, nil
}

// revert removes what write has written, as the journal did not accept its commits.
func (p *past) revert() {
	if p.file == nil {
		return
	}
	p.size = p.good
	if err := p.file.Truncate(p.good); err != nil {
		p.reopenLater(err)
	}
}

// reopenLater makes the next commit rewrite the file.
func (p *past) reopenLater(err error) {
	p.log.Error("revision not written: rollback to it will not be possible after a restart", "file", pastName, "error", err)
	p.close()
}

// close closes the file. The next commit rewrites it.
func (p *past) close() {
	if p.file != nil {
		p.file.Close()
	}
	p.file = nil
}

// rewrite writes a new file of the remembered revisions.
func (p *past) rewrite() error {
	if p.disk.pendingTidy != nil {
		return errors.New("the state directory cannot be written")
	}
	if p.file != nil {
		p.file.Close()
	}
	p.file, p.size, p.lines = nil, 0, 0
	err := p.disk.replaceFile(pastName, func(f file) error {
		p.file = f
		err := p.append(p.list...)
		p.file = nil
		return err
	})
	if err == nil {
		p.file, err = p.disk.files.Open(filepath.Join(p.disk.path, pastName))
	}
	p.limit = max(4*maxUndo, 2*p.size)
	return err
}

func (p *past) append(list ...*Revision) error {
	var lines []byte
	for _, r := range list {
		line, err := encodeLine(r)
		if err != nil {
			return err
		}
		lines = append(lines, line...)
	}
	if _, err := p.file.WriteAt(lines, p.size); err != nil {
		return err
	}
	p.size += int64(len(lines))
	p.lines += len(list)
	return nil
}

// committed is called when the batch's commits are on disk; the caller holds Store.view.
func (p *past) committed() {
	for _, r := range p.pending {
		clearDeadline(p.list, r.Resolves, false)
		p.list = append(p.list, r)
	}
	p.pending = nil
	p.trim()
}

// Revisions returns the remembered revisions, the last one first.
func (s *Store) Revisions() []Revision {
	s.view.RLock()
	defer s.view.RUnlock()
	list := make([]Revision, 0, len(s.past.list))
	for _, r := range slices.Backward(s.past.list) {
		list = append(list, *r)
	}
	return list
}

// Waiting returns the revision that waits for confirmation, if there is one.
func (s *Store) Waiting() (Revision, bool) {
	s.view.RLock()
	defer s.view.RUnlock()
	if r := unconfirmed(s.past.list); r != nil {
		return *r, true
	}
	return Revision{}, false
}

// Confirm confirms a revision: the one awaiting confirmation, if number is 0. When it returns, that
// is on disk.
func (s *Store) Confirm(number uint64) (uint64, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	r := s.past.waiting()
	switch {
	case r == nil && number == 0:
		return 0, fmt.Errorf("no revision %w", ErrPending)
	case r == nil || number != 0 && r.Number != number:
		return 0, fmt.Errorf("revision %d %w", number, ErrConfirmed)
	}
	if p := s.past; p.disk != nil {
		err := error(nil)
		if p.file == nil {
			err = p.rewrite()
		}
		if err == nil {
			err = p.append(&Revision{Resolves: r.Number})
		}
		if err == nil {
			err = p.file.Datasync()
		}
		if err != nil {
			p.reopenLater(err)
			return 0, fmt.Errorf("write that revision %d is confirmed: %w", r.Number, err)
		}
	}
	s.view.Lock()
	defer s.view.Unlock()
	clearDeadline(s.past.list, r.Number, true)
	s.past.trim()
	return r.Number, nil
}
