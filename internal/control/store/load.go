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

// loader reads a state directory. It changes nothing in it: damage is handled only after all files
// turned out to be of a supported version.
type loader struct {
	disk      *disk
	tx        *Tx
	revision  uint64 // of the state in tx
	head      *Snapshot
	saved     int // version of the snapshot file; 0: there is none, or it is damaged
	replayed  int // number of replayed commits
	tornBytes int // size of an incomplete last line
	damage    []damage
	setAside  bool // damaged files have a second name
}

// damage is a file with unexpected or missing content.
type damage struct {
	file   string
	line   int // the first damaged line; 1: the header; 0: the whole file
	reason error
	more   int // number of further damaged lines
}

func (l *loader) damaged(file string, line int, reason error) {
	if l.hasDamage(file) {
		l.damage[len(l.damage)-1].more++
		return
	}
	l.damage = append(l.damage, damage{file: file, line: line, reason: reason})
}

// hasDamage reports whether the file is damaged. It is only valid for the file that was read last.
func (l *loader) hasDamage(file string) bool {
	n := len(l.damage)
	return n > 0 && l.damage[n-1].file == file
}

// load reads all files on top of an empty snapshot.
func (l *loader) load(empty *Snapshot) error {
	l.tx = newTx(empty, "")
	if err := l.loadSnapshot(); err != nil {
		return err
	}
	if err := l.loadJournals(); err != nil {
		return err
	}
	l.head, l.tx = l.buildSnapshot(), nil
	return nil
}

// buildSnapshot returns the snapshot of what was read. Unlike Tx.finish, it compares nothing, as
// the base is empty.
func (l *loader) buildSnapshot() *Snapshot {
	counts := l.tx.base.cloneCounts()
	for at, r := range l.tx.touched {
		if r == nil {
			continue
		}
		l.tx.count(counts, at.table, r, 1)
		if r.header().Version == 0 { // it was lost with the header
			r.header().Version = l.revision
		}
	}
	return l.tx.buildSnapshot(l.revision, counts)
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

// open reads a file. It returns the header, and the other lines including their newlines; the last
// line may lack its newline.
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
		return h, nil, fmt.Errorf("state file %s %w: it has version %d, this loxilb supports versions up to %d; the file is unchanged",
			filepath.Join(l.disk.path, name), ErrNewer, h.Version, latestVersion)
	case h.File != kind || h.Version < 1:
		l.damaged(name, 1, fmt.Errorf("its header claims a %q of version %d", h.File, h.Version))
	}
	return h, lines[1:], nil
}

// loadSnapshot reads all undamaged lines of the snapshot, as its objects do not depend on each
// other.
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
			r.Owner = owner // consecutive objects of an owner share the memory of its name
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

// loadJournal replays the commits of a journal after l.revision, up to revision end, where the next
// journal begins. It reports whether the journal is complete.
func (l *loader) loadJournal(base, end uint64, first bool) (complete bool, err error) {
	name := journalName(base)
	h, lines, err := l.open(name, "journal")
	switch {
	case err != nil:
		return false, err
	case end <= l.revision:
		return true, nil // the snapshot contains all of its commits; a crash has prevented its removal
	case l.hasDamage(name):
		return false, nil
	}
	if h.Revision != base {
		l.damaged(name, 1, fmt.Errorf("its header claims to follow revision %d", h.Revision))
		return false, nil
	}
	if base > l.revision {
		if snapshotDamaged := first && len(l.damage) > 0; !snapshotDamaged {
			l.damaged(name, 0, fmt.Errorf("it follows revision %d, but the files before it end at %d", base, l.revision))
		}
		if !first {
			return false, nil
		}
		// The snapshot is missing, has lost its revision or is an older one. The commits of
		// the journal are valid nevertheless.
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

// replay applies the commit in a line, which must be of that revision, completely or not at all.
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
	rows := make([]tableRow, len(c.Put))
	for i := range c.Put {
		r := &c.Put[i]
		r.Owner, r.Version = cmp.Or(r.Owner, c.Owner), revision
		if rows[i].table, rows[i].row, err = l.tx.base.rowOf(r); err != nil {
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
	table, row, err := l.tx.base.rowOf(r)
	if err == nil {
		l.tx.replace(tableRow{table, row})
	}
	return err
}

// replace sets the row of an object, and removes its unknown record or former row.
func (tx *Tx) replace(p tableRow) {
	if p.table == tx.base.unknownTable() || tx.maxUnknown > 0 {
		tx.forget(tx.base.idOf(p))
	}
	tx.set(p.table, p.row)
}

// forget removes the row or unknown record of an object.
func (tx *Tx) forget(id ID) {
	if r := find(tx.base, tx, id); r != nil {
		tx.remove(tx.tableOf(r, id), r)
	}
}

// reportUnknown logs the unknown records.
func reportUnknown(s *Snapshot, log *slog.Logger) {
	for u := range s.Unknown() {
		log.Warn("state record of an unknown kind or format: it is kept, and has no effect until a loxilb that supports it runs",
			"kind", u.Kind, "key", u.Key, "format", u.Format, "reason", u.Reason,
			"hint", "run the newer loxilb that wrote it, or put or delete the object to replace it")
	}
}

// unreadName is the file that contains Unread.Since. It exists from the opening of a state until
// Done.
const unreadName = "unread"

// Unread determines which other files a start must read, because they are newer than the state.
// Opening a state writes to it. So if a start ended after Open and before it has read those files,
// they would look older than the state forever. To prevent this, Unread stores the time of the
// state before Open.
type Unread struct {
	Since time.Time // files that are newer must be read; zero: all files

	dir     string
	created bool // this start has created the file
}

// MarkUnread stores the time of the state, unless an earlier start that ended too early has stored
// one. Call it before Open. If it fails to store the time, Since is valid nevertheless.
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
		return u, nil // IncludeAll will be called, as nothing was ever stored
	}
	u.created = errors.Is(err, fs.ErrNotExist)
	return u, u.write()
}

// IncludeAll makes the start read all files. It is for a state that was never stored.
func (u *Unread) IncludeAll() error {
	u.Since = time.Time{}
	return u.write()
}

// Withdraw removes the time that this start has stored, but not that of an earlier start. It is for
// a start that does not open the state.
func (u *Unread) Withdraw() error {
	if !u.created {
		return nil
	}
	return u.Done()
}

// Done removes the stored time, after the files have been read.
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

// write replaces the file atomically.
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
