package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The entries of a shared store:
//
//	head         describes the last change; each change of a node replaces it, so concurrent ones conflict
//	KIND/KEY     an object, such as service/20.20.20.1:80/tcp
//	node/NAME    a node, while it is running
const headPath = "head"

// remoteSchema is the version of this form. Objects have formats of their own (Kind.Format).
const remoteSchema = 1

// headRecord is the value of the head.
type headRecord struct {
	Schema    int    `json:"schema"`
	Store     string `json:"store"`               // ID of the shared store, created with its first entry
	Node      string `json:"node"`                // the node that made the change
	Commit    string `json:"commit"`              // ID of the change
	More      bool   `json:"more,omitempty"`      // further parts of the change follow
	Uploading bool   `json:"uploading,omitempty"` // the node is copying its objects into the empty store
	Owner     string `json:"owner,omitempty"`
	Author
	Confirm time.Time `json:"confirm,omitzero"` // deadline after which the node rolls the change back unless it is confirmed there
}

// objectRecord is the value of an object's entry.
type objectRecord struct {
	Format int             `json:"format"`
	Owner  string          `json:"owner"`
	Object json.RawMessage `json:"object"`
}

// pathOf returns the path of an object's entry.
func pathOf(id ID) string { return id.Kind + "/" + id.Key }

// ignoredPath reports whether an entry is not meant to be an object.
func ignoredPath(path string) bool { return path == headPath || strings.HasPrefix(path, nodePrefix) }

// decodeHead decodes the head. It returns nil without an error if there is none.
func decodeHead(e *RemoteEntry) (*headRecord, error) {
	if e == nil || e.Value == nil {
		return nil, nil
	}
	h := &headRecord{}
	if err := json.Unmarshal(e.Value, h); err != nil || h.Schema < 1 || h.Store == "" {
		return nil, errors.New(`its entry "head" was not written by loxilb: use another prefix, or delete that entry`)
	}
	if h.Schema > remoteSchema {
		return nil, fmt.Errorf("it was written by a newer loxilb with schema %d, and this one only knows schema %d: update this node", h.Schema, remoteSchema)
	}
	return h, nil
}

// remoteRow is an object in the shared store.
type remoteRow struct {
	id ID
	tableRow
}

// decodeEntry decodes the entry of an object. The row of a deleted object is nil.
func (l *layout) decodeEntry(e *RemoteEntry) (remoteRow, *RemoteProblem) {
	kind, key, _ := strings.Cut(e.Path, "/")
	r := remoteRow{id: ID{kind, key}}
	r.table = slices.Index(l.names[:len(l.tables)], kind)
	problem := &RemoteProblem{Path: e.Path, Since: time.Now(), revision: e.Revision}
	switch {
	case r.table < 0:
		problem.Reason = "its kind is not known to this loxilb"
		return r, problem
	case !l.shared[r.table]:
		problem.Reason = "objects of its kind are local to each node, and are not read from here"
		return r, problem
	case e.Value == nil:
		return r, nil
	}
	var value objectRecord
	if err := json.Unmarshal(e.Value, &value); err != nil || value.Format < 1 || len(value.Object) == 0 {
		problem.Reason = "its value is not an object of loxilb"
		return r, problem
	}
	made, err := l.tables[r.table].decode(value.Format, value.Object)
	if err == nil && l.tables[r.table].keyOf(made) != key {
		err = fmt.Errorf("its object has the key %q", l.tables[r.table].keyOf(made))
	}
	if err != nil {
		problem.Reason, problem.newer = err.Error(), errors.Is(err, errNewerFormat)
		return r, problem
	}
	made.header().Meta = Meta{Owner: value.Owner, Remote: e.Revision}
	r.row = made
	return r, nil
}

// encodeRow returns the value of an object's entry.
func (l *layout) encodeRow(p tableRow) ([]byte, error) {
	r, err := l.tables[p.table].encode(p.row)
	if err != nil {
		return nil, err
	}
	return json.Marshal(objectRecord{r.Format, p.row.header().Owner, r.Object})
}
