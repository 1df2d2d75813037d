package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/host/filelock"
)

// The state directory:
//
//	snapshot.jsonl            all objects at some revision N; replaced as a whole
//	journal-<revision>.jsonl  the commits that follow that revision, appended one by one
//	*.damaged-<time>          damaged files, for a human; never read again
//
// The state is the snapshot plus the commits after revision N in the journals. Usually there is one
// journal. When it has grown, the store begins a second journal, writes the snapshot in the
// background, and then removes the first journal. A crash at any point leaves a readable state.
const (
	snapshotName  = "snapshot.jsonl"
	journalPrefix = "journal-"
	fileSuffix    = ".jsonl"
	tempSuffix    = ".tmp"

	// minJournal is the least size at which a new journal is begun. A larger limit is the size
	// of the snapshot, so in the long run a commit costs twice its own bytes.
	minJournal = 1 << 20
)

// disk is an open state directory. The store's writing lock guards it.
type disk struct {
	files       fileSystem
	layout      *layout
	log         *slog.Logger
	path        string
	dir         directory // locked; synced after renames
	journal     file
	version     int     // of the journal
	size        int64   // of the journal's undamaged part
	limit       int64   // size at which a new journal is begun
	pendingTidy *loader // Open has read the directory, but could not tidy it; then there is no journal
	behind      bool    // the state has urgent changes that could not be written
	// unusable: nothing must be appended to the journal, as its content is unknown, or another
	// journal may follow it already.
	unusable bool

	background sync.WaitGroup // writes a snapshot
	busy       chan struct{}  // capacity 1: holds a token while background is running
}

// lockDir opens and locks a directory. It creates the directory if it is missing.
func lockDir(files fileSystem, path string) (directory, error) {
	if err := makeDir(files, path); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	dir, err := files.OpenDir(path)
	if err != nil {
		return nil, fmt.Errorf("open the state directory: %w", err)
	}
	if err := dir.Lock(); err != nil {
		dir.Close()
		if held := (*filelock.HeldError)(nil); errors.As(err, &held) {
			return nil, fmt.Errorf("state directory %s %w (%s): stop it, or use another state directory", path, ErrInUse, held.Holder())
		}
		return nil, fmt.Errorf("lock the state directory %s: %w", path, err)
	}
	return dir, nil
}

// makeDir creates a directory and its parents if they are missing. It returns when their names are
// on disk: a commit must not be lost together with its directory.
func makeDir(files fileSystem, path string) error {
	path = filepath.Clean(path)
	above := filepath.Dir(path)
	info, err := files.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
	case above == path:
		return err
	}
	made := err != nil
	if err := makeDir(files, above); err != nil {
		return err
	}
	if made {
		if err := files.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// Sync also the name of an existing directory: an earlier start may have created it, and
	// ended before this point. A failure of that is ignored: the parent of an older directory
	// may belong to others.
	if err := syncDir(files, above); made {
		return err
	}
	return nil
}

func journalName(revision uint64) string {
	return fmt.Sprintf("%s%020d%s", journalPrefix, revision, fileSuffix)
}

// append writes commits that follow a state, and returns when they are on disk. The caller has
// called catchUp. After a failure, the disk has none of them, or the journal is unusable, and the
// next append begins a new one. A journal is read only up to the revision at which the next one
// begins, so the remains of a failed write do no harm.
func (d *disk) append(before *Snapshot, commits []*commitRecord) error {
	version, size := bareVersion, 0
	for _, c := range commits {
		version = max(version, c.version(d.layout))
		size += c.size()
	}
	if d.unusable || version > d.version {
		if err := d.newJournal(before.revision, max(version, d.version)); err != nil {
			return err
		}
	}
	lines := make([]byte, 0, size)
	for _, c := range commits {
		lines = c.appendTo(lines, d.version)
	}
	_, err := d.journal.WriteAt(lines, d.size)
	if err == nil {
		err = d.journal.Datasync()
	}
	if err != nil {
		// After a failed fdatasync it is unknown which pages are on disk: do not append to
		// that file again. Truncating it only helps a restart before the next commit, so it
		// may fail.
		d.unusable = true
		if d.journal.Truncate(d.size) == nil {
			_ = d.journal.Sync()
		}
		return fmt.Errorf("append to the journal: %w", err)
	}
	d.size += int64(len(lines))
	return nil
}

// newJournal begins the journal that follows revision, and closes the previous one. If it fails,
// the previous journal stays in use only if the new one certainly does not exist: otherwise a start
// would ignore later entries of the previous one. If the new one may exist, the next append tries
// again to begin it.
func (d *disk) newJournal(revision uint64, version int) error {
	header, err := encodeLine(headerRecord{File: "journal", Version: version, Revision: revision})
	if err != nil {
		return err
	}
	path := filepath.Join(d.path, journalName(revision))
	if err := d.writeTemp(path, func(f file) error { _, err := f.Write(header); return err }); err != nil {
		return err
	}
	d.unusable = true
	if err := d.putInPlace(path); err != nil {
		return err
	}
	f, err := d.files.Open(path)
	if err != nil {
		return err
	}
	if d.journal != nil {
		d.journal.Close() // its content was synced, or its loss was reported
	}
	d.journal, d.version, d.size, d.unusable = f, version, int64(len(header)), false
	return nil
}

// replaceFile creates or replaces a file of the directory atomically.
func (d *disk) replaceFile(name string, write func(file) error) error {
	path := filepath.Join(d.path, name)
	if err := d.writeTemp(path, write); err != nil {
		return err
	}
	return d.putInPlace(path)
}

// writeTemp writes the file that putInPlace then renames.
func (d *disk) writeTemp(path string, write func(file) error) error {
	f, err := d.files.Create(path + tempSuffix)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, d.files.Remove(path+tempSuffix))
	}
	return nil
}

// putInPlace renames the file of writeTemp. If it fails, the rename may have happened or not.
func (d *disk) putInPlace(path string) error {
	if err := d.files.Rename(path+tempSuffix, path); err != nil {
		_ = d.files.Remove(path + tempSuffix) // fails if the rename has happened
		return err
	}
	return d.dir.Sync()
}

// journals returns the revisions that the directory's journals follow, in order.
func (d *disk) journals() ([]uint64, error) {
	names, err := d.names(journalPrefix, fileSuffix)
	var revisions []uint64
	for _, name := range names {
		digits := strings.TrimSuffix(strings.TrimPrefix(name, journalPrefix), fileSuffix)
		revision, err := strconv.ParseUint(digits, 10, 64)
		if err == nil && name == journalName(revision) {
			revisions = append(revisions, revision)
		}
	}
	return revisions, err
}

// removeJournals removes the journals for which drop returns true.
func (d *disk) removeJournals(drop func(revision uint64) bool) error {
	revisions, err := d.journals()
	for _, revision := range revisions {
		if drop(revision) {
			err = errors.Join(err, d.files.Remove(filepath.Join(d.path, journalName(revision))))
		}
	}
	return err
}

// names returns the names of files with a prefix and a suffix, in order.
func (d *disk) names(prefix, suffix string) ([]string, error) {
	entries, err := d.files.ReadDir(d.path)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// close waits for a snapshot that is being written, and unlocks the directory.
func (d *disk) close() error {
	d.background.Wait()
	err := d.dir.Unlock()
	if d.journal != nil {
		err = errors.Join(err, d.journal.Close())
	}
	return errors.Join(err, d.dir.Close())
}

// LastWritten returns when the state in a directory was last written or opened; zero: there is
// none. Call it before Open, which writes.
func LastWritten(dir string) (last time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return last // Open reports the error
	}
	for _, e := range entries {
		if e.Name() != snapshotName && !strings.HasPrefix(e.Name(), journalPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
