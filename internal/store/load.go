package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// noEnd is the end of the last journal.
const noEnd = ^uint64(0)

// loader reads a state directory, and changes nothing in it: what is to be done about damage is decided once all
// files have been seen to be of a version that this code knows.
type loader struct {
	disk     *disk
	head     *Snapshot
	saved    bool // a snapshot file was read, without damage
	replayed int  // commits
	torn     int  // bytes of a last line that was never finished
	damage   []damage
	aside    bool // what is damaged has its second name
}

// damage is one file that holds what it should not, or lacks what it should.
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

func (l *loader) load() error {
	if err := l.loadSnapshot(); err != nil {
		return err
	}
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
		// A journal is a history: what follows a gap would make a state that never was.
		for _, later := range journals[i+1:] {
			l.damaged(journalName(later), 0, errors.New("it follows what was lost"))
		}
		return nil
	}
	return nil
}

// open reads a file as lines with their newlines, the header apart. A last line without one is left in lines.
func (l *loader) open(name, kind string) (h headerRecord, lines [][]byte, err error) {
	content, err := os.ReadFile(filepath.Join(l.disk.path, name))
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
	case h.Version > version:
		return h, nil, fmt.Errorf("state file %s %w: it is of version %d, and this loxilb knows versions up to %d; it is left as it is",
			filepath.Join(l.disk.path, name), ErrNewer, h.Version, version)
	case h.File != kind || h.Version < 1:
		l.damaged(name, 1, fmt.Errorf("it says to be a %q of version %d", h.File, h.Version))
	}
	return h, lines[1:], nil
}

// loadSnapshot reads every line that is good, wherever the damage is: its services are independent.
func (l *loader) loadSnapshot() error {
	h, lines, err := l.open(snapshotName, "snapshot")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	tx := begin(l.head, "")
	for i, line := range lines {
		var r serviceRecord
		err := decodeLine(line, &r)
		if err == nil {
			e := &entry{owner: r.Owner}
			if e.service, err = r.service(); err == nil {
				tx.set(e)
			}
		}
		if err != nil {
			l.damaged(snapshotName, i+2, err)
		}
	}
	if n := len(lines); n != h.Services && len(l.damage) == 0 {
		l.damaged(snapshotName, 0, fmt.Errorf("it should hold %d services, and has %d lines of them", h.Services, n))
	}
	next, _ := tx.finish()
	l.head = next.at(h.Revision)
	l.saved = len(l.damage) == 0
	return nil
}

// loadJournal replays the commits of a journal past those that head has, and up to revision end, which the next
// journal follows. It returns whether it got there.
func (l *loader) loadJournal(base, end uint64, first bool) (whole bool, err error) {
	name := journalName(base)
	h, lines, err := l.open(name, "journal")
	if err != nil || l.hasDamage(name) {
		return false, err
	}
	if h.Revision != base {
		l.damaged(name, 1, fmt.Errorf("it says to follow revision %d", h.Revision))
		return false, nil
	}
	if base > l.head.revision {
		if snapshotDamaged := first && len(l.damage) > 0; !snapshotDamaged {
			l.damaged(name, 0, fmt.Errorf("it follows revision %d, and what was found ends at %d", base, l.head.revision))
		}
		if !first {
			return false, nil
		}
		// The snapshot is missing, or has lost its revision, or is an older one: these commits are still good.
		l.head = l.head.at(base)
	}
	for i, line := range lines {
		revision := base + uint64(i) + 1
		if revision > end {
			return true, nil // the rest is of a commit that failed
		}
		if end == noEnd && line[len(line)-1] != '\n' {
			l.torn = len(line)
			return true, nil
		}
		if err := l.replay(line, revision); err != nil {
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
func (l *loader) replay(line []byte, revision uint64) error {
	var r commitRecord
	if err := decodeLine(line, &r); err != nil {
		return err
	}
	if r.Revision != revision {
		return fmt.Errorf("it is revision %d where %d should be", r.Revision, revision)
	}
	if revision <= l.head.revision {
		return nil
	}
	tx := begin(l.head, r.Owner)
	if err := r.replay(tx); err != nil {
		return err
	}
	next, _ := tx.finish()
	l.head = next.at(revision)
	l.replayed++
	return nil
}

// at is the same state under another revision.
func (s *Snapshot) at(revision uint64) *Snapshot {
	c := *s
	c.revision = revision
	return &c
}
