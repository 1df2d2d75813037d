package store

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	maxRevisions = 50
	maxUndo      = 32 << 20 // bytes of all remembered revisions
	packFrom     = 4 << 10  // undo data longer than this is compressed
)

// The reasons for which a rollback or a confirmation is refused.
var (
	ErrForgotten = errors.New("not found")
	ErrPending   = errors.New("waits for confirmation")
	ErrConfirmed = errors.New("is not waiting for confirmation")
)

// Author describes who requested a commit.
type Author struct {
	Who   string `json:"who,omitempty"`   // name of a user or a token
	From  string `json:"from,omitempty"`  // origin of the request, such as an address
	Doing string `json:"doing,omitempty"` // a short description of the request
}

// Revision is a remembered commit. The store remembers the last 50, or fewer if their undo data
// exceeds 32 MiB.
type Revision struct {
	Number uint64    `json:"revision"`
	Time   time.Time `json:"time"`
	Owner  string    `json:"owner"`
	Author
	Created   int       `json:"created,omitempty"`
	Changed   int       `json:"changed,omitempty"`
	Deleted   int       `json:"deleted,omitempty"`
	Confirm   time.Time `json:"confirm,omitzero"`    // deadline after which it is rolled back; zero: it is not waiting for confirmation
	Confirmed bool      `json:"confirmed,omitempty"` // it was confirmed in time
	Resolves  uint64    `json:"resolves,omitempty"`  // the revision that this one confirms or rolls back

	Undo   json.RawMessage `json:"undo,omitempty"`   // list of undoRecord
	Packed []byte          `json:"packed,omitempty"` // Undo, compressed
}

// TimeLeft returns the time until a revision is rolled back. It is at most the original time, even
// if the clock was not set yet when the machine started.
func (r *Revision) TimeLeft(now time.Time) time.Duration {
	return min(r.Confirm.Sub(now.Round(0)), r.Confirm.Sub(r.Time))
}

// undoRecord is the record of an object before a revision. Without a format, the object did not
// exist.
type undoRecord struct {
	Kind   string          `json:"kind"`
	Key    string          `json:"key"`
	Format int             `json:"format,omitempty"`
	Owner  string          `json:"owner,omitempty"`
	Object json.RawMessage `json:"object,omitempty"`
	Gone   bool            `json:"gone,omitempty"` // the revision deleted it
}

func (u *undoRecord) id() ID { return ID{u.Kind, u.Key} }

// size returns the size of the revision's undo data, with some overhead.
func (r *Revision) size() int { return len(r.Undo) + len(r.Packed) + 128 }

// revisionOf returns the revision to remember for a change.
func revisionOf(l *layout, c *change, by CommitOptions) (*Revision, error) {
	r := &Revision{
		Number: c.revision, Time: time.Now().UTC().Truncate(time.Millisecond), Owner: c.owner, Author: by.Author,
		Confirm: by.Confirm.UTC(), Resolves: c.resolves,
	}
	if by.Confirm.IsZero() {
		r.Confirm = time.Time{}
	}
	list := make([]undoRecord, 0, len(c.rows))
	for _, changed := range c.rows {
		u := undoRecord{Kind: changed.id.Kind, Key: changed.id.Key}
		if changed.before == nil {
			r.Created++
			list = append(list, u)
			continue
		}
		was, err := l.recordOf(tableRow{changed.table, changed.before})
		if err != nil {
			return nil, err
		}
		u.Format, u.Owner, u.Object = was.Format, was.Owner, was.Object
		if changed.after == nil {
			r.Deleted++
			u.Gone = true
		} else {
			r.Changed++
		}
		list = append(list, u)
	}
	if r.Doing == "" {
		r.Doing = describe(list)
	}
	var err error
	if r.Undo, err = json.Marshal(list); err != nil {
		return nil, err
	}
	if len(r.Undo) > packFrom {
		if r.Packed, err = pack(r.Undo); err != nil {
			return nil, err
		}
		r.Undo = nil
	}
	return r, nil
}

// maxDescription bounds a revision's description, in bytes.
const maxDescription = 200

// describe describes a change by its objects: "delete service 20.20.20.1:80/tcp", or "create 3
// services" if there are several.
func describe(list []undoRecord) string {
	verb := func(u *undoRecord) string {
		switch {
		case u.Format == 0:
			return "create "
		case u.Gone:
			return "delete "
		}
		return "change "
	}
	if len(list) == 1 {
		text := verb(&list[0]) + list[0].Kind + " " + list[0].Key
		return strings.ToValidUTF8(text[:min(len(text), maxDescription)], "")
	}
	var groups []string
	count := map[string]int{}
	for i := range list {
		group := verb(&list[i]) + "%d " + list[i].Kind
		if count[group]++; count[group] == 1 {
			groups = append(groups, group)
		}
	}
	for i, group := range groups {
		n := count[group]
		if groups[i] = fmt.Sprintf(group, n); n > 1 {
			groups[i] += "s"
		}
	}
	text := strings.Join(groups, ", ")
	return text[:min(len(text), maxDescription)]
}

// undoRecords decodes the undo data.
func (r *Revision) undoRecords() (undoRecords []undoRecord, err error) {
	data := []byte(r.Undo)
	if len(r.Packed) > 0 {
		if data, err = io.ReadAll(flate.NewReader(bytes.NewReader(r.Packed))); err != nil {
			return nil, fmt.Errorf("revision %d cannot be read: %w", r.Number, err)
		}
	}
	if err := json.Unmarshal(data, &undoRecords); err != nil {
		return nil, fmt.Errorf("revision %d cannot be read: %w", r.Number, err)
	}
	return undoRecords, nil
}

func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// Undo restores the objects that a revision has changed. It does not restore, but returns, objects
// that were changed again since.
func (tx *Tx) Undo(number uint64) (left []ID, err error) {
	r := tx.remembered(number)
	if r == nil {
		return nil, fmt.Errorf("revision %d %w", number, ErrForgotten)
	}
	list, err := r.undoRecords()
	if err != nil {
		return nil, err
	}
	for i := range list {
		version := number // the version that the revision gave the object
		if list[i].Gone {
			version = 0
		}
		if now, _ := metaOf(find(tx.base, tx, list[i].id())); now.Version != version {
			left = append(left, list[i].id())
			continue
		}
		if err := tx.restore(&list[i]); err != nil {
			return nil, err
		}
	}
	tx.resolve(number)
	return left, nil
}

// RollBackTo restores the state of a revision. It does not restore, but returns, objects for which
// keep returns true. keep gets the object's current and former value, nil if it is missing or
// unknown.
func (tx *Tx) RollBackTo(number uint64, keep func(now, then any) bool) (kept []ID, err error) {
	then := map[ID]*undoRecord{}
	for n := tx.base.revision; n > number; n-- {
		r := tx.remembered(n)
		if r == nil {
			return nil, fmt.Errorf("revision %d %w (available: %s)", number, ErrForgotten, tx.available())
		}
		list, err := r.undoRecords()
		if err != nil {
			return nil, err
		}
		for i := range list {
			then[list[i].id()] = &list[i]
		}
		tx.resolve(n)
	}
	if number > tx.base.revision {
		return nil, fmt.Errorf("revision %d %w (available: %s)", number, ErrForgotten, tx.available())
	}
	ids := make([]ID, 0, len(then))
	for id := range then {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	for _, id := range ids {
		stays, err := tx.isKept(then[id], keep)
		if err != nil {
			return nil, err
		}
		if stays {
			kept = append(kept, id)
			continue
		}
		if err := tx.restore(then[id]); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// isKept returns the result of keep for an object.
func (tx *Tx) isKept(u *undoRecord, keep func(now, then any) bool) (bool, error) {
	now := tx.valueOf(find(tx.base, tx, u.id()))
	var then any
	if u.Format != 0 {
		_, former, err := tx.base.rowOf(&record{Kind: u.Kind, Key: u.Key, Format: u.Format, Object: u.Object})
		if err != nil {
			return false, fmt.Errorf("%s cannot be read as it was: %w", u.id(), err)
		}
		then = tx.valueOf(former)
	}
	return keep(now, then), nil
}

// valueOf returns the object of a row; nil: there is no row, or it is an unknown record.
func (tx *Tx) valueOf(r row) any {
	if v, ok := r.(interface{ any() any }); ok {
		return v.any()
	}
	return nil
}

// restore restores an object. Unlike Put and Delete, it ignores the owner.
func (tx *Tx) restore(u *undoRecord) error {
	if u.Format == 0 {
		tx.forget(u.id())
		return nil
	}
	r := record{Kind: u.Kind, Key: u.Key, Format: u.Format, Owner: u.Owner, Version: tx.revision(), Object: u.Object}
	table, former, err := tx.base.rowOf(&r)
	if err != nil {
		return fmt.Errorf("%s cannot be read as it was: %w", u.id(), err)
	}
	if old := find(tx.base, tx, u.id()); old != nil && tx.tableOf(old, u.id()) == table {
		if at := (rowKey{table, former.header().sortKey}); old.header().sortKey == at.sortKey && tx.same(at, old, former) {
			return nil
		}
	}
	tx.replace(tableRow{table, former})
	return nil
}

// resolve records that the transaction resolves a revision, if that one waits for confirmation.
func (tx *Tx) resolve(number uint64) {
	if r := tx.remembered(number); r != nil && !r.Confirm.IsZero() {
		tx.resolves = number
	}
}

// remembered returns a revision, or nil. It also finds revisions of the same batch.
func (tx *Tx) remembered(number uint64) *Revision {
	if tx.revisions == nil {
		return nil
	}
	return tx.revisions.find(number)
}

// available returns the numbers of the remembered revisions, for errors. A rollback to the revision
// before these is possible, too, but its author and time are unknown.
func (tx *Tx) available() string {
	if tx.revisions == nil {
		return "none"
	}
	return tx.revisions.available(tx.base.revision)
}
