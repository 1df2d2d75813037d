package store

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
)

// compactIfDue begins a new journal when the present one has grown, and lets a snapshot be written behind it:
// that takes time in proportion to the state (30 ms at 10,000 services), which no commit should wait for. It
// cannot fail: when the disk refuses, the journal goes on growing, and this is tried again when it has doubled.
func (d *disk) compactIfDue(head *Snapshot) {
	if d.size < d.limit || d.broken {
		return
	}
	select {
	case d.busy <- struct{}{}:
	default:
		return // the last one is still being written
	}
	if err := d.newJournal(head.revision); err != nil {
		d.log.Error("new state journal failed, the old one goes on", "dir", d.path, "error", err)
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
	if err := d.writeSnapshot(head); err != nil {
		return fmt.Errorf("write %s: %w", snapshotName, err)
	}
	return d.removeJournals(func(revision uint64) bool { return revision < head.revision })
}

// writeSnapshot replaces the snapshot file.
func (d *disk) writeSnapshot(head *Snapshot) error {
	return d.replaceFile(snapshotName, func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<16)
		write := func(record any) error {
			line, err := encodeLine(record)
			if err == nil {
				_, err = w.Write(line)
			}
			return err
		}
		header := headerRecord{File: "snapshot", Version: version, Revision: head.revision, Services: head.Len()}
		if err := write(header); err != nil {
			return err
		}
		for e := range head.entries() {
			if err := write(recordOfService(e.owner, e.service)); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}

// setJournalLimit follows the size of the last snapshot, good enough for what it bounds.
func (d *disk) setJournalLimit() {
	d.limit = minJournal
	if info, err := os.Stat(filepath.Join(d.path, snapshotName)); err == nil {
		d.limit = max(minJournal, info.Size())
	}
}
