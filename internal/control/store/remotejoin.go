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

// joinedName is the file that names the shared store; the local files are its cache.
const joinedName = "shared.json"

type joinedRecord struct {
	Store string `json:"store"`
}

// joined returns the shared store that this node has joined; "": none.
func (s *Store) joined() (string, error) {
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

// setJoined notes that the local shared objects are a cache of a shared store.
func (s *Store) setJoined(id string) error {
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

// MarkUnshared notes that the objects are this node's only. Should it join a shared store later,
// they are compared.
func (s *Store) MarkUnshared() error {
	if s.disk == nil {
		return nil
	}
	path := filepath.Join(s.disk.path, joinedName)
	if _, err := s.disk.files.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
		return nil // a file system that is full or read-only would refuse to remove even that
	}
	return s.disk.files.Remove(path)
}

// joinRemote decides about the shared objects of this node, before it takes those of the shared
// store. again: it has copied its own objects there, so the store must be read again.
func (s *Store) joinRemote(ctx context.Context, read *remoteRead) (again bool, err error) {
	sh := s.sharing
	h := read.head
	switch {
	case h == nil: // it is new or has been emptied: the objects here are the best copy
		id := sh.store
		if id == "" {
			id = rand.Text()
		}
		return true, s.upload(ctx, read, id, s.differing(read))
	case h.Uploading && h.Node == sh.node: // and was interrupted
		return true, s.upload(ctx, read, h.Store, s.differing(read))
	case h.Uploading:
		return false, fmt.Errorf("node %s is copying its objects there: if it never returns, delete the entry head", h.Node)
	case h.Store == sh.store:
		return false, nil
	}
	list := s.differing(read)
	switch {
	case len(list) == 0 || sh.join == JoinRemote:
		return false, s.setJoined(h.Store) // first: from here on the local files are a cache
	case len(read.rows) == 0 || sh.join == JoinLocal:
		return true, s.upload(ctx, read, h.Store, list)
	}
	return false, s.Snapshot().differError(list)
}

// differing returns the shared objects of this node that the shared store does not have as they
// are here.
func (s *Store) differing(read *remoteRead) (list []placed) {
	now := s.Snapshot()
	for place, t := range now.tables {
		if !now.shared[place] {
			continue
		}
		for r := range now.rows(place, sortIndex, "") {
			there, exists := read.rows[ID{now.names[place], t.keyOf(r)}]
			if !exists || !t.same(r, there.row) {
				list = append(list, placed{place, r})
			}
		}
	}
	return list
}

// differError refuses to join: either choice would lose objects.
func (l *layout) differError(list []placed) error {
	const shown = 3
	var names []string
	for _, p := range list[:min(len(list), shown)] {
		names = append(names, ID{l.names[p.place], l.tables[p.place].keyOf(p.row)}.String())
	}
	text := strings.Join(names, ", ")
	if more := len(list) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("it holds the configuration of other nodes, and this node has objects that differ: %s; start loxilb once with --store-join=store to drop them, or with --store-join=local to put them there", text)
}

// upload copies objects of this node into the shared store, unless another node changes it
// meanwhile. The caller reads everything again.
func (s *Store) upload(ctx context.Context, read *remoteRead, id string, list []placed) error {
	sh, l := s.sharing, s.Snapshot().layout
	changes := make([]RemoteEntry, len(list))
	for i, p := range list {
		of := ID{l.names[p.place], l.tables[p.place].keyOf(p.row)}
		value, err := l.encodeRow(p)
		if err != nil {
			return fmt.Errorf("%s: %w", of, err)
		}
		changes[i] = RemoteEntry{Path: pathOf(of), Value: value}
		if there, exists := read.rows[of]; exists {
			changes[i].Revision = there.row.header().Remote
		} else if p := read.problems[pathOf(of)]; p != nil {
			changes[i].Revision = p.at
		}
	}
	head := headRecord{Schema: remoteSchema, Store: id, Node: sh.node, Owner: "loxilb", Author: Author{Who: "loxilb", Doing: "copy the objects of node " + sh.node}}
	at := read.headAt
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
	return s.setJoined(id)
}
