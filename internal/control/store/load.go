package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// noEnd is the end of the last journal.
const noEnd = ^uint64(0)

// loader reads a state directory, and changes nothing in it: damage is handled once all files are
// known to be of a supported version.
type loader struct {
	disk      *disk
	tx        *Tx
	revision  uint64 // that tx has reached
	head      *Snapshot
	saved     int // version of the snapshot file, if it was read without damage
	replayed  int // commits
	tornBytes int // bytes of an incomplete last line
	damage    []damage
	setAside  bool // the damaged files were renamed
}

// damage is one file with unexpected or missing content.
type damage struct {
	file   string
	line   int // the first that is bad: 1 is the header, 0 the whole file
	reason error
	more   int // bad lines after it
}

func (l *loader) damaged(file string, line int, reason error) {
	if l.hasDamage(file) {
		l.damage[len(l.damage)-1].more++
		return
	}
	l.damage = append(l.damage, damage{file: file, line: line, reason: reason})
}

// hasDamage is about the file being read: damage is found file by file.
func (l *loader) hasDamage(file string) bool {
	n := len(l.damage)
	return n > 0 && l.damage[n-1].file == file
}

// load reads all files on top of an empty snapshot.
func (l *loader) load(empty *Snapshot) error {
	l.tx = begin(empty, "")
	if err := l.loadSnapshot(); err != nil {
		return err
	}
	if err := l.loadJournals(); err != nil {
		return err
	}
	l.head, l.tx = l.seal(), nil
	return nil
}

// seal makes the snapshot of all that was read: on top of an empty one nothing has to be compared.
func (l *loader) seal() *Snapshot {
	counts := l.tx.base.cloneCounts()
	for at, r := range l.tx.touched {
		if r == nil {
			continue
		}
		l.tx.count(counts, at.place, r, 1)
		if r.header().Version == 0 { // the header with it is lost
			r.header().Version = l.revision
		}
	}
	return l.tx.seal(l.revision, counts)
}

func (l *loader) loadJournals() error {
	journals, err := l.disk.journals()
	if err != nil {
		return err
	}
	for i, revision := range journals {
		end := noEnd
		if i+1 < len(journals) {
			end = journals[i+1]
		}
		whole, err := l.loadJournal(revision, end, i == 0)
		if err != nil {
			return err
		}
		if whole {
			continue
		}
		// A journal is a history: replaying entries after a gap would make a state that
		// never existed.
		for _, later := range journals[i+1:] {
			l.damaged(journalName(later), 0, errors.New("it follows a lost part"))
		}
		return nil
	}
	return nil
}

// open reads a file as lines with their newlines, the header apart. A last line without one is left
// in lines.
func (l *loader) open(name, kind string) (h headerRecord, lines [][]byte, err error) {
	content, err := l.disk.files.ReadFile(filepath.Join(l.disk.path, name))
	if err != nil {
		return h, nil, err
	}
	lines = bytes.SplitAfter(content, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	if len(lines) == 0 {
		l.damaged(name, 0, errors.New("it is empty"))
		return h, nil, nil
	}
	h, err = decodeHeader(lines[0])
	switch {
	case err != nil:
		l.damaged(name, 1, err)
	case h.Version > latestVersion:
		return h, nil, fmt.Errorf("state file %s %w: it is of version %d, and this loxilb knows versions up to %d; it is left as it is",
			filepath.Join(l.disk.path, name), ErrNewer, h.Version, latestVersion)
	case h.File != kind || h.Version < 1:
		l.damaged(name, 1, fmt.Errorf("its header claims a %q of version %d", h.File, h.Version))
	}
	return h, lines[1:], nil
}

// loadSnapshot reads every line that is good, wherever the damage is: its objects are independent.
func (l *loader) loadSnapshot() error {
	h, lines, err := l.open(snapshotName, "snapshot")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := ""
	for i, line := range lines {
		r, err := l.tx.base.decodeObject(line, h.Version)
		if r.Owner == owner {
			r.Owner = owner // one text for all objects in a row with one owner
		}
		owner = r.Owner
		if err == nil {
			if h.Version < latestVersion {
				r.Version = h.Revision
				if len(h.Versions) == len(lines) {
					r.Version = h.Versions[i]
				}
			}
			err = l.put(&r)
		}
		if err != nil {
			l.damaged(snapshotName, i+2, err)
		}
	}
	if n, want := len(lines), h.Services+h.Objects; n != want && len(l.damage) == 0 {
		l.damaged(snapshotName, 0, fmt.Errorf("it should have %d objects, and has %d lines", want, n))
	}
	l.revision = h.Revision
	if len(l.damage) == 0 {
		l.saved = h.Version
	}
	return nil
}

// loadJournal replays the commits of a journal after those already read, up to revision end, where
// the next journal begins. It returns whether it got there.
func (l *loader) loadJournal(base, end uint64, first bool) (whole bool, err error) {
	name := journalName(base)
	h, lines, err := l.open(name, "journal")
	switch {
	case err != nil:
		return false, err
	case end <= l.revision:
		return true, nil // the snapshot has all of it; its removal was interrupted
	case l.hasDamage(name):
		return false, nil
	}
	if h.Revision != base {
		l.damaged(name, 1, fmt.Errorf("its header claims to follow revision %d", h.Revision))
		return false, nil
	}
	if base > l.revision {
		if snapshotDamaged := first && len(l.damage) > 0; !snapshotDamaged {
			l.damaged(name, 0, fmt.Errorf("it follows revision %d, and the files before it end at %d", base, l.revision))
		}
		if !first {
			return false, nil
		}
		// The snapshot is missing, or has lost its revision, or is an older one: these
		// commits are still good.
		l.revision = base
	}
	for i, line := range lines {
		revision := base + uint64(i) + 1
		if revision > end {
			return true, nil // the rest belongs to a failed commit
		}
		if end == noEnd && line[len(line)-1] != '\n' {
			l.tornBytes = len(line)
			return true, nil
		}
		if err := l.replay(line, h.Version, revision); err != nil {
			l.damaged(name, i+2, err)
			return false, nil
		}
	}
	if reached := base + uint64(len(lines)); end != noEnd && reached < end {
		l.damaged(name, 0, fmt.Errorf("it ends at revision %d, and the next journal follows %d", reached, end))
		return false, nil
	}
	return true, nil
}

// replay applies a line that must be the commit of that revision. It never applies half of one.
func (l *loader) replay(line []byte, version int, revision uint64) error {
	c, err := l.tx.base.decodeCommit(line, version)
	if err != nil {
		return err
	}
	if c.Revision != revision {
		return fmt.Errorf("it is revision %d where %d should be", c.Revision, revision)
	}
	if revision <= l.revision {
		return nil
	}
	rows := make([]placed, len(c.Put))
	for i := range c.Put {
		r := &c.Put[i]
		r.Owner, r.Version = cmp.Or(r.Owner, c.Owner), revision
		if rows[i].place, rows[i].row, err = l.tx.base.rowOf(r); err != nil {
			return err
		}
	}
	for _, id := range c.Delete {
		l.tx.forget(ID(id))
	}
	for _, p := range rows {
		l.tx.replace(p)
	}
	l.revision = revision
	l.replayed++
	return nil
}

func (l *loader) put(r *record) error {
	place, made, err := l.tx.base.rowOf(r)
	if err == nil {
		l.tx.replace(placed{place, made})
	}
	return err
}

// replace replaces all rows of an object by one.
func (tx *Tx) replace(p placed) {
	if p.place == len(tx.base.tables) || tx.keeps > 0 {
		tx.forget(tx.idOf(p.place, p.row))
	}
	tx.set(p.place, p.row)
}

// forget removes all rows of an object.
func (tx *Tx) forget(id ID) {
	if r := find(tx.base, tx, id); r != nil {
		tx.remove(tx.placeOf(r, id), r)
	}
}

// reportUnknown logs the records that are kept without being understood.
func reportUnknown(s *Snapshot, log *slog.Logger) {
	for u := range s.Unknown() {
		log.Warn("state record kept without being understood: it is not served until a loxilb runs that knows it",
			"kind", u.Kind, "key", u.Key, "format", u.Format, "reason", u.Reason,
			"hint", "run the newer loxilb that wrote it, or put or delete the object to replace it")
	}
}

// unreadName exists from when a state is opened until files that are newer than it have been read.
const unreadName = "unread"

// Unread remembers the time for comparing files that a start reads if they are newer than the
// state. Opening a state writes to it: without this, a start that ends after that, and before it
// has read them, would make them look old forever.
type Unread struct {
	Since time.Time // newer files count; zero: all files do

	dir  string
	made bool // by this start
}

// MarkUnread begins to record, or continues after a start that ended too early. Call it before
// Open. An error means that it is not recorded; Since is valid nevertheless.
func MarkUnread(dir string) (*Unread, error) {
	u := &Unread{Since: LastWritten(dir), dir: dir}
	text, err := os.ReadFile(u.path())
	if err == nil {
		if before, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text))); err == nil && before.Before(u.Since) {
			u.Since = before
			return u, nil
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return u, nil // All will be called: nothing was ever stored
	}
	u.made = errors.Is(err, fs.ErrNotExist)
	return u, u.write()
}

// All makes all files count, as nothing was ever stored.
func (u *Unread) All() error {
	u.Since = time.Time{}
	return u.write()
}

// Withdraw removes the record of this start, but not of an earlier one.
func (u *Unread) Withdraw() error {
	if !u.made {
		return nil
	}
	return u.Done()
}

// Done is called when the files have been read.
func (u *Unread) Done() error {
	if u.dir == "" {
		return nil
	}
	if err := os.Remove(u.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(osFiles{}, u.dir)
}

func (u *Unread) path() string { return filepath.Join(u.dir, unreadName) }

// write replaces the file, so a crash leaves the old or the new one.
func (u *Unread) write() error {
	if u.dir == "" {
		return nil // the state is in memory
	}
	next := u.path() + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(u.Since.Format(time.RFC3339Nano) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, u.path()); err != nil {
		return err
	}
	return syncDir(osFiles{}, u.dir)
}
