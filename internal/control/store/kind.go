package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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

// Meta is what the store knows of an object besides its content.
type Meta struct {
	Owner   string // who put it; nobody else may change it
	Version uint64 // revision of the commit that last changed it
}

// Kind says all that the store has to know about the objects of a kind. Only what is marked
// optional may be missing.
type Kind[T any] struct {
	Name string         // as users write it: "service"
	Key  func(T) string // as users write it, and as journals have it; two objects of a kind never share one
	// Sort is what a key is sorted by and looked up by in memory, another for each key; false: no
	// object has that key. Optional: the key itself.
	Sort  func(key string) (string, bool)
	Equal func(a, b T) bool

	Validate func(T) error // optional: what is refused at once, whatever else there is
	Clone    func(T) T     // optional: when a T has parts that its holder could change

	// Format is the highest that Decode knows. Each object is written in the lowest format that can
	// say what it holds, so that an older loxilb reads what it can. A format is 1 or more.
	Format int
	// Encode writes an object as JSON, without space, its key included.
	Encode func(T) (format int, object []byte, err error)
	// Decode is the inverse. What it refuses is kept as it is, and not served: there may be a
	// loxilb that knows it.
	Decode func(format int, object []byte) (T, error)
	// Bare has objects of up to format 2 written to files of version 2, which are of one kind, as
	// earlier versions of loxilb read them; it is the object's first member, which holds the key.
	// Decode then gets objects with a member "owner", and must ignore it. Optional; one kind may
	// have it.
	Bare string

	Indexes []Index[T]    // optional
	Totals  []func(T) int // optional: what is summed up over all objects
	// Check refuses a state that a commit would make; changed are all objects, of any kind, that it
	// would create, change or delete. Files are read without it: what was allowed once can be
	// mended. Optional.
	Check func(before, after *Snapshot, changed []ID) error
}

// Index finds objects by other things than their key.
type Index[T any] struct {
	Name string
	// Values are what an object is found by, none if it is not in the index. They hold no zero
	// byte, or are all of one length.
	Values func(T) []string
}

// View is what objects are read from: a *Snapshot, or a *Tx, which sees its own changes.
type View interface {
	row(place int, sort string) row
	rows(place, index int, prefix string) iter.Seq[row]
	first(place int, prefix string) row
}

// row is an object as the tables hold it. It is never changed, only replaced.
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

// about is what the store asks of a kind before it is open.
type about struct {
	name, bare string
	totals     int
}

// AnyTable is a Table of any kind of object.
type AnyTable interface {
	attach(place int) error
	about() about
	indexes() int
	keysOf(r row, index int) []string
	sortOf(key string) (string, bool)
	keyOf(r row) string
	same(a, b row) bool
	totals(r row, sum []int, sign int)
	encode(r row) (record, error)
	decode(format int, object []byte) (row, error)
	check(before, after *Snapshot, changed []ID) error
}

// errNewerFormat is why a record is kept and not served.
var errNewerFormat = errors.New("its format is newer than what this loxilb knows")

// DecodeStrict reads JSON into a struct, and refuses members that it does not have: for
// Kind.Decode.
func DecodeStrict(object []byte, into any) error {
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
