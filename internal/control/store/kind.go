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

// Meta is the store's information about an object besides its content.
type Meta struct {
	Owner   string // only the owner may change it
	Version uint64 // revision of the commit that last changed it
	Remote  int64  // revision of the shared store that last changed it; 0: none, or not known yet
}

// Tag names the object's version. For shared objects it is the same on all nodes, while Version is
// a number of this node. Tags prevent confusion of two nodes' numbers.
func (m Meta) Tag() string {
	if m.Remote != 0 {
		return remoteTag + strconv.FormatInt(m.Remote, 10)
	}
	return strconv.FormatUint(m.Version, 10)
}

// ParseTag returns the tag that a text is; false: none.
func ParseTag(text string) (tag string, ok bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, remoteTag), 10, 63)
	return text, err == nil && n > 0
}

// remoteTag begins tags of revisions of the shared store.
const remoteTag = "shared-"

// Kind defines the objects of a kind for the store. Only members marked optional may be missing.
type Kind[T any] struct {
	Name string         // as users write it: "service"
	Key  func(T) string // as users write it, and as in journals; unique within a kind
	// Sort returns the key for sorting and lookups in memory, unique for each key; false: no object
	// has that key. Optional: the key itself.
	Sort  func(key string) (string, bool)
	Equal func(a, b T) bool

	Validate func(T) error // optional: refuses an invalid object, independent of others
	Clone    func(T) T     // optional: when a T has parts that its holder could change

	// Format is the highest format that Decode knows, 1 or more. Each object is written in the
	// lowest format that can express it, so an older loxilb can read most objects.
	Format int
	// Encode writes an object as JSON, without space, its key included.
	Encode func(T) (format int, object []byte, err error)
	// Decode is the inverse of Encode. A record that it refuses is kept unchanged and not served:
	// another version of loxilb may know it.
	Decode func(format int, object []byte) (T, error)
	// Bare is the object's first member, which holds the key, if objects of up to format 2 are
	// written to files of version 2, which have one kind, as earlier versions of loxilb read them.
	// Decode then gets objects with a member "owner", and must ignore it. Optional; one kind may
	// have it.
	Bare string

	// Urgent objects change even while the disk refuses to store that: a commit that changes no
	// others succeeds, and is stored once the disk accepts it. If the process ends before, the
	// change is lost. For roles: another node may count on the change.
	Urgent bool
	// Shared objects are the same on all nodes, if the store is shared (Store.Share). Others belong
	// to the node.
	Shared bool

	Indexes []Index[T]    // optional
	Totals  []func(T) int // optional: values that are summed over all objects
	Max     int           // maximum number of objects; 0: any
	Plural  string        // their name in the refusal of more
	// Check refuses the state that a commit would make; changed are all objects, of any kind, that
	// it would create, change or delete. Files are read without it: an earlier state can be
	// repaired. Optional.
	Check func(before, after *Snapshot, changed []ID) error
}

// Index finds objects by values other than their key.
type Index[T any] struct {
	Name string
	// Values returns an object's values, none if it is not in the index. They hold no zero byte, or
	// all have the same length.
	Values func(T) []string
	// RefuseDuplicate returns the error of an object that has a value of another one, given the
	// other one's key. nil: objects may share values.
	RefuseDuplicate func(object T, other string) error
}

// View is a source of objects: a *Snapshot, or a *Tx, which sees its own changes.
type View interface {
	row(place int, sort string) row
	rows(place, index int, prefix string) iter.Seq[row]
	first(place int, prefix string) row
}

// row is an object in a table. It is never changed, only replaced.
type row interface{ header() *rowHeader }

type rowHeader struct {
	sort string
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

// AnyTable is a Table of any kind of object.
type AnyTable interface {
	attach(place int) error
	about() kindInfo
	indexes() int
	keysOf(r row, index int) []string
	sortOf(key string) (string, bool)
	keyOf(r row) string
	same(a, b row) bool
	withMeta(r row, meta Meta) row
	totals(r row, sum []int, sign int)
	encode(r row) (record, error)
	decode(format int, object []byte) (row, error)
	check(before, after *Snapshot, changed []ID) error
}

// errNewerFormat is why a record is kept and not served.
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
