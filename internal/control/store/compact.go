package store

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
)

// compactIfDue begins a new journal if the current one has grown, and starts to write a snapshot in
// the background, as no commit should wait for that (30 ms with 10,000 services). If it fails, the
// journal continues to grow, and compactIfDue tries again when it has doubled.
func (d *disk) compactIfDue(head *Snapshot) {
	if d.size < d.limit || d.unusable {
		return
	}
	select {
	case d.busy <- struct{}{}:
	default:
		return // the last snapshot is still being written
	}
	if err := d.newJournal(head.revision, d.version); err != nil {
		d.log.Error("new state journal failed, the old one stays in use", "dir", d.path, "error", err)
		d.limit = 2 * d.size
		<-d.busy
		return
	}
	d.setJournalLimit()
	d.background.Go(func() {
		defer func() { <-d.busy }()
		if err := d.compact(head); err != nil {
			d.log.Error("state snapshot failed, the journals keep everything", "dir", d.path, "error", err)
		}
	})
}

// compact writes the snapshot, and removes the journals that it includes.
func (d *disk) compact(head *Snapshot) error {
	if _, err := d.writeSnapshot(head); err != nil {
		return fmt.Errorf("write %s: %w", snapshotName, err)
	}
	return d.removeJournals(func(revision uint64) bool { return revision < head.revision })
}

// errNotBare reports that a snapshot must be written in a higher version.
var errNotBare = errors.New("version 2 cannot express the snapshot")

// writeSnapshot replaces the snapshot file, in the lowest version that can express all of it.
func (d *disk) writeSnapshot(head *Snapshot) (version int, err error) {
	for version = bareVersion; ; version = latestVersion {
		err = d.replaceFile(snapshotName, func(f file) error { return head.writeTo(f, version) })
		if !errors.Is(err, errNotBare) {
			return version, err
		}
	}
}

// writeTo writes a snapshot file. It returns errNotBare if the version cannot express the snapshot.
func (s *Snapshot) writeTo(f file, version int) error {
	header := headerRecord{File: "snapshot", Version: version, Revision: s.revision}
	if version == latestVersion {
		header.Objects = s.objects()
	} else {
		if !s.onlyBareKind() {
			return errNotBare
		}
		header.Services, header.Versions = s.objects(), s.versions()
	}
	line, err := encodeLine(header)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	if _, err := w.Write(line); err != nil {
		return err
	}
	for p := range s.all() {
		r, err := s.recordOf(p)
		if err != nil {
			return err
		}
		if version < latestVersion && !s.fitsVersion2(&r) {
			return errNotBare
		}
		line = appendLine(line[:0], func(b []byte) []byte {
			if version < latestVersion {
				return r.appendBare(b, s.bareMember)
			}
			return r.appendTo(b)
		})
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return w.Flush()
}

// all yields all rows, by table and sort key, and then the unknown records.
func (s *Snapshot) all() iter.Seq[tableRow] {
	return func(yield func(tableRow) bool) {
		for table := range s.names {
			for r := range s.rows(table, primaryIndex, "") {
				if !yield(tableRow{table, r}) {
					return
				}
			}
		}
	}
}

// objects returns the number of all rows and unknown records.
func (s *Snapshot) objects() (n int) {
	for _, c := range s.counts {
		n += c.rows
	}
	return n
}

// onlyBareKind reports whether all objects are of the kind that files of version 2 can have.
func (s *Snapshot) onlyBareKind() bool {
	for table := range s.tables {
		if s.counts[table].rows > 0 && s.names[table] != s.bareKind {
			return false
		}
	}
	return true
}

// versions returns the versions of all rows in the order of all; nil: each is the snapshot's
// revision.
func (s *Snapshot) versions() []uint64 {
	list := make([]uint64, 0, s.objects())
	older := false
	for p := range s.all() {
		v := p.row.header().Version
		older = older || v != s.revision
		list = append(list, v)
	}
	if !older {
		return nil
	}
	return list
}

// recordOf returns the record of a row, in the form of a snapshot file.
func (l *layout) recordOf(p tableRow) (r record, err error) {
	if k, ok := p.row.(*unknownRow); ok {
		r = record{Kind: k.Kind, Format: k.format, Key: k.Key, Object: k.object}
	} else if r, err = l.tables[p.table].encode(p.row); err != nil {
		return r, fmt.Errorf("%s: %w", l.idOf(p), err)
	}
	r.Owner, r.Version = p.row.header().Owner, p.row.header().Version
	return r, nil
}

// setJournalLimit sets the limit to the size of the last snapshot, and at least to minJournal.
func (d *disk) setJournalLimit() {
	d.limit = minJournal
	if info, err := d.files.Stat(filepath.Join(d.path, snapshotName)); err == nil {
		d.limit = max(minJournal, info.Size())
	}
}
