package store

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
)

// compactIfDue begins a new journal when the current one has grown, and starts to write a snapshot
// in the background: that takes time in proportion to the state (30 ms at 10,000 services), which
// no commit should wait for. It cannot fail: if the disk refuses, the journal continues to grow,
// and this is retried when it has doubled.
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

// compact writes the snapshot and removes the journals that it makes needless.
func (d *disk) compact(head *Snapshot) error {
	if _, err := d.writeSnapshot(head); err != nil {
		return fmt.Errorf("write %s: %w", snapshotName, err)
	}
	return d.removeJournals(func(revision uint64) bool { return revision < head.revision })
}

// errNotBare is why a snapshot is restarted, in a higher version.
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

// writeTo writes a snapshot file; with version 2, errNotBare if that cannot express it.
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

// all yields every row, by table and in order, and last the kept records.
func (s *Snapshot) all() iter.Seq[placed] {
	return func(yield func(placed) bool) {
		for place := range s.names {
			for r := range s.rows(place, sortIndex, "") {
				if !yield(placed{place, r}) {
					return
				}
			}
		}
	}
}

// objects returns the number of all rows.
func (s *Snapshot) objects() (n int) {
	for _, c := range s.counts {
		n += c.rows
	}
	return n
}

// onlyBareKind is false if there is an object of a kind that a file of version 2 cannot have.
func (s *Snapshot) onlyBareKind() bool {
	for place := range s.tables {
		if s.counts[place].rows > 0 && s.names[place] != s.bareKind {
			return false
		}
	}
	return true
}

// versions returns the versions of all rows in order; nil: all are the snapshot's revision.
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

// recordOf returns the record of a row for a snapshot file.
func (l *layout) recordOf(p placed) (r record, err error) {
	if k, ok := p.row.(*keptRow); ok {
		r = record{Kind: k.Kind, Format: k.format, Key: k.Key, Object: k.object}
	} else if r, err = l.tables[p.place].encode(p.row); err != nil {
		return r, fmt.Errorf("%s: %w", ID{l.names[p.place], l.tables[p.place].keyOf(p.row)}, err)
	}
	r.Owner, r.Version = p.row.header().Owner, p.row.header().Version
	return r, nil
}

// setJournalLimit sets the limit in proportion to the last snapshot.
func (d *disk) setJournalLimit() {
	d.limit = minJournal
	if info, err := d.files.Stat(filepath.Join(d.path, snapshotName)); err == nil {
		d.limit = max(minJournal, info.Size())
	}
}
