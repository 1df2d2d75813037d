package store

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"
)

// openDisk locks, reads and tidies a state directory, so it contains one snapshot and one empty
// journal. If the disk cannot be written (full, read-only), objects are served nevertheless, and
// changes are refused until it can be written.
func openDisk(files fileSystem, path string, empty *Snapshot, log *slog.Logger) (*disk, *Snapshot, error) {
	dir, err := lockDir(files, path)
	if err != nil {
		return nil, nil, err
	}
	d := &disk{files: files, layout: empty.layout, log: log, path: path, dir: dir, busy: make(chan struct{}, 1)}
	l := &loader{disk: d}
	if err := l.load(empty); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read the state: %w", err), d.close())
	}
	if err := d.tidy(l); err != nil {
		if l.head.revision == 0 {
			return nil, nil, errors.Join(fmt.Errorf("write the state in %s: %w", path, err), d.close())
		}
		log.Error("state directory cannot be written: the state is as last stored, and changes are refused until it can",
			"dir", path, "error", err)
		d.pendingTidy = l
	}
	return d, l.head, nil
}

// tidy tidies a directory after loading. The directory contains the same state after each step:
// damaged files are linked first, and journals are removed last.
func (d *disk) tidy(l *loader) error {
	if err := d.setAside(l); err != nil {
		return err
	}
	if l.tornBytes > 0 {
		d.log.Warn("unfinished last line of the state journal dropped: its commit was never confirmed",
			"dir", d.path, "bytes", l.tornBytes)
	}
	temps, err := d.names("", fileSuffix+tempSuffix)
	for _, name := range temps {
		err = errors.Join(err, d.files.Remove(filepath.Join(d.path, name)))
	}
	if err != nil {
		return err
	}
	version := max(l.saved, bareVersion)
	if l.replayed > 0 || len(l.damage) > 0 || l.saved == 0 && l.head.revision > 0 {
		if version, err = d.writeSnapshot(l.head); err != nil {
			return err
		}
	}
	return d.startOver(l.head.revision, version)
}

// startOver begins the journal that follows a snapshot, and removes all others.
func (d *disk) startOver(revision uint64, version int) error {
	if err := d.newJournal(revision, version); err != nil {
		return err
	}
	d.setJournalLimit()
	return d.removeJournals(func(other uint64) bool { return other != revision })
}

// setAside gives damaged files a second name, under which they remain when the first one is
// replaced or removed.
func (d *disk) setAside(l *loader) error {
	if l.setAside {
		return nil // by an earlier attempt
	}
	suffix := ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	for _, m := range l.damage {
		file := filepath.Join(d.path, m.file)
		if err := d.files.Link(file, file+suffix); err != nil {
			return fmt.Errorf("set damaged %s aside: %w", m.file, err)
		}
		d.log.Error("state file damaged: set aside, and what could be read is kept",
			"file", file, "line", m.line, "reason", m.reason, "more", m.more, "aside", file+suffix,
			"objects", l.head.objects(), "revision", l.head.revision)
	}
	l.setAside = true
	return d.dir.Sync()
}
