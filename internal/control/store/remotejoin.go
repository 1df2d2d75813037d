package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// joinedName is the file that has the ID of the shared store that this node has joined.
const joinedName = "shared.json"

type joinedRecord struct {
	Store string `json:"store"`
}

// readJoined returns the ID of the shared store that this node has joined; "": none.
func (s *Store) readJoined() (string, error) {
	if s.disk == nil {
		return "", nil
	}
	data, err := s.disk.files.ReadFile(filepath.Join(s.disk.path, joinedName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var j joinedRecord
	if err == nil && json.Unmarshal(data, &j) != nil {
		s.log.Warn("the name of this node's shared store cannot be read: its objects are compared again", "file", joinedName)
	}
	return j.Store, err
}

// recordJoined records that this node has joined a shared store: its shared objects are a cache.
func (s *Store) recordJoined(id string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.sharing.store == id {
		return nil
	}
	if s.disk != nil {
		data, err := json.Marshal(joinedRecord{id})
		if err == nil {
			err = s.disk.replaceFile(joinedName, func(f file) error { _, err := f.Write(data); return err })
		}
		if err != nil {
			return fmt.Errorf("record which shared store was joined: %w", err)
		}
	}
	s.sharing.store = id
	return nil
}

// MarkUnshared records that this node uses no shared store. If it joins one later, its objects are
// compared again.
func (s *Store) MarkUnshared() error {
	if s.disk == nil {
		return nil
	}
	path := filepath.Join(s.disk.path, joinedName)
	if _, err := s.disk.files.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
		return nil // on a full or read-only file system, removing a missing file could fail
	}
	return s.disk.files.Remove(path)
}

// joinRemote determines whether the shared objects of the shared store replace this node's. again:
// this node has copied its objects there instead, so the shared store must be read again.
func (s *Store) joinRemote(ctx context.Context, read *remoteRead) (again bool, err error) {
	sh := s.sharing
	h := read.head
	switch {
	case h == nil: // the shared store is new or was emptied: the objects here are the best copy
		id := sh.store
		if id == "" {
			id = rand.Text()
		}
		return true, s.upload(ctx, read, id, s.differences(read))
	case h.Uploading && h.Node == sh.node: // an earlier upload was interrupted
		return true, s.upload(ctx, read, h.Store, s.differences(read))
	case h.Uploading:
		return false, fmt.Errorf(`node %s is copying its objects there: if it never returns, delete the entry "head"`, h.Node)
	case h.Store == sh.store:
		return false, nil
	}
	list := s.differences(read)
	switch {
	case len(list) == 0 || sh.join == JoinRemote:
		return false, s.recordJoined(h.Store) // before the local files become a cache
	case len(read.rows) == 0 || sh.join == JoinLocal:
		return true, s.upload(ctx, read, h.Store, list)
	}
	return false, s.Snapshot().joinError(list)
}

// differences returns the shared objects of this node that are missing or different in the shared
// store.
func (s *Store) differences(read *remoteRead) (list []tableRow) {
	now := s.Snapshot()
	for table, t := range now.tables {
		if !now.shared[table] {
			continue
		}
		for r := range now.rows(table, primaryIndex, "") {
			remote, exists := read.rows[now.idOf(tableRow{table, r})]
			if !exists || !t.same(r, remote.row) {
				list = append(list, tableRow{table, r})
			}
		}
	}
	return list
}

// joinError returns the error of a node that does not join, because either choice would lose
// objects.
func (l *layout) joinError(list []tableRow) error {
	const shown = 3
	var names []string
	for _, p := range list[:min(len(list), shown)] {
		names = append(names, l.idOf(p).String())
	}
	text := strings.Join(names, ", ")
	if more := len(list) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("it holds the configuration of other nodes, and this node has objects that differ: %s; start loxilb once with --store-join=store to drop them, or with --store-join=local to put them there", text)
}

// upload copies objects of this node into the shared store, unless another node changes it
// meanwhile. The caller reads everything again.
func (s *Store) upload(ctx context.Context, read *remoteRead, id string, list []tableRow) error {
	sh, l := s.sharing, s.Snapshot().layout
	changes := make([]RemoteEntry, len(list))
	for i, p := range list {
		id := l.idOf(p)
		value, err := l.encodeRow(p)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		changes[i] = RemoteEntry{Path: pathOf(id), Value: value}
		if remote, exists := read.rows[id]; exists {
			changes[i].Revision = remote.row.header().Remote
		} else if p := read.problems[pathOf(id)]; p != nil {
			changes[i].Revision = p.revision
		}
	}
	head := headRecord{Schema: remoteSchema, Store: id, Node: sh.node, Owner: "loxilb", Author: Author{Who: "loxilb", Doing: "copy the objects of node " + sh.node}}
	at := read.headRevision
	parts := slices.Collect(partsOf(changes))
	if len(parts) == 0 {
		parts = append(parts, nil)
	}
	for i, part := range parts {
		head.Commit, head.Uploading = rand.Text(), i < len(parts)-1
		value, err := json.Marshal(head)
		if err != nil {
			return err
		}
		revision, ok, err := sh.remote.Write(ctx, append(slices.Clone(part), RemoteEntry{Path: headPath, Value: value, Revision: at}))
		if err != nil {
			return err
		}
		if !ok {
			return nil // another node was faster: the caller reads its objects
		}
		at = revision
	}
	sh.log.Info("shared objects of this node are in the shared store", "objects", len(list))
	return s.recordJoined(id)
}
