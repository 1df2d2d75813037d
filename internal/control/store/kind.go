package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// ID names an object of any kind.
type ID struct{ Kind, Key string }

func (id ID) String() string { return id.Kind + " " + id.Key }

func compareIDs(a, b ID) int {
	if a.Kind != b.Kind {
		return strings.Compare(a.Kind, b.Kind)
	}
	return strings.Compare(a.Key, b.Key)
}

// Meta is the store's data about an object.
type Meta struct {
	Owner   string // only the owner may change it
	Version uint64 // the revision that last changed it
	Remote  int64  // the revision of the shared store that last changed it; 0: none, or not known yet
}

// Tag returns the tag of the object's version. Shared objects have the same tag on all nodes, while
// Version counts the revisions of this node. Tags of shared and of local versions differ, so they
// cannot be confused.
func (m Meta) Tag() string {
	if m.Remote != 0 {
		return remoteTag + strconv.FormatInt(m.Remote, 10)
	}
	return strconv.FormatUint(m.Version, 10)
}

// ParseTag returns text if it is a tag; false: it is none.
func ParseTag(text string) (tag string, ok bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, remoteTag), 10, 63)
	return text, err == nil && n > 0
}

// remoteTag is the prefix of tags of shared objects.
const remoteTag = "shared-"

// Kind defines the objects of a kind for the store. Members are required unless marked optional.
type Kind[T any] struct {
	Name string         // as users write it, such as "service"
	Key  func(T) string // as users write it, and as in journals; unique within a kind
	// Sort returns the sort key of a key, which orders and identifies objects in memory; false:
	// no object can have that key. Optional: the sort key is the key.
	Sort  func(key string) (string, bool)
	Equal func(a, b T) bool

	Validate func(T) error // optional: refuses an object that is invalid by itself
	Clone    func(T) T     // optional: returns a copy; needed if the caller of Put could change parts of a T

	// Format is the highest format that Decode knows, 1 or more. Each object is written in the
	// lowest format that can express it, so an older loxilb can read most objects.
	Format int
	// Encode returns an object, including its key, as JSON without spaces.
	Encode func(T) (format int, object []byte, err error)
	// Decode is the inverse of Encode. The store keeps a record that Decode refuses unchanged,
	// but does not serve it: another version of loxilb may know it.
	Decode func(format int, object []byte) (T, error)
	// Bare is the name of the object's first member, which holds the key. One kind may have it.
	// Its objects of up to format 2 are written to files of version 2, which contain only this
	// kind, and which earlier versions of loxilb can read. Decode then gets objects with a
	// member "owner", and must ignore it. Optional.
	Bare string

	// Urgent objects change even while the disk cannot be written: a commit that changes no
	// other objects succeeds, and is written once that is possible. If the process ends before,
	// the change is lost. This is for roles: another node may rely on the change.
	Urgent bool
	// Shared objects are the same on all nodes if the store is shared (Store.Share). Other
	// objects belong to the node.
	Shared bool

	Indexes []Index[T]    // optional
	Totals  []func(T) int // optional: values that are summed over all objects
	Max     int           // maximum number of objects; 0: unlimited
	Plural  string        // name of the objects in the error of a commit that exceeds Max
	// Check refuses the state that a commit would make. changed are all objects, of any kind,
	// that the commit would create, change or delete. It is not called for a state that is read
	// from files, so users can repair it. Optional.
	Check func(before, after *Snapshot, changed []ID) error
}

// Index finds objects by values other than their key.
type Index[T any] struct {
	Name string
	// Values returns an object's values; none: it is not in the index. Values contain no zero
	// byte, or all have the same length.
	Values func(T) []string
	// RefuseDuplicate returns the error for an object that has the same value as another
	// object, whose key it gets. nil: objects may have the same values.
	RefuseDuplicate func(object T, other string) error
}

// View is a source of objects: a *Snapshot, or a *Tx, which sees its own changes.
type View interface {
	row(table int, sortKey string) row
	rows(table, index int, prefix string) iter.Seq[row]
	first(table int, prefix string) row
}

// row is an object in a table. It is never changed, only replaced.
type row interface{ header() *rowHeader }

type rowHeader struct {
	sortKey string
	Meta
}

func (h *rowHeader) header() *rowHeader { return h }

type object[T any] struct {
	rowHeader
	value T
}

// kindInfo is the type-independent part of a kind.
type kindInfo struct {
	name, bare string
	totals     int
	urgent     bool
	shared     bool
}

// AnyTable is a Table of any kind. Only NewTable makes them.
type AnyTable interface {
	attach(table int) error
	info() kindInfo
	indexes() int
	keysOf(r row, index int) []string
	sortKeyOf(key string) (string, bool)
	keyOf(r row) string
	same(a, b row) bool
	withMeta(r row, meta Meta) row
	totals(r row, sum []int, sign int)
	encode(r row) (record, error)
	decode(format int, object []byte) (row, error)
	check(before, after *Snapshot, changed []ID) error
}

// errNewerFormat is a reason why a record is unknown.
var errNewerFormat = errors.New("its format is newer than this loxilb")

// decodeStrict decodes JSON into a struct, and refuses unknown members.
func decodeStrict(object []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (k *Kind[T]) complete() error {
	if k.Name == "" || strings.ContainsAny(k.Name, " \x00") || k.Key == nil || k.Equal == nil || k.Encode == nil || k.Decode == nil || k.Format < 1 {
		return fmt.Errorf("kind %q is not complete", k.Name)
	}
	return nil
}
