package dptest

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/loader"
)

// State is the content of a data path's maps and variables at one time. A test that has ended
// restores it, so the next test uses the same programs: loading them takes half a second of CPU
// time.
type State struct {
	contents []content
	groups   int // of the connection table
}

// ErrGrown reports that the connection table has grown, so its former state cannot be restored.
var ErrGrown = errors.New("the connection table has grown")

// content is the content of an array, or the rows of a hash.
type content struct {
	m          *ebpf.Map
	values     any // of an array
	keys, rows [][]byte
}

// NewState reads the state of a data path. Its maps must remain open while the state is used.
func NewState(c *loader.Collection) (*State, error) {
	s := &State{}
	err := eachMap(c, func(m *ebpf.Map) error {
		if m.Type() == ebpf.ArrayOfMaps {
			return nil // rows of segments belong to services, which are deleted before Restore
		}
		saved, err := read(m)
		s.contents = append(s.contents, saved)
		return err
	})
	if err == nil {
		s.groups, err = groups(c)
	}
	return s, err
}

// Restore restores the state of a data path without services and connections. All segments of
// growing arrays become empty.
func (s *State) Restore(c *loader.Collection) error {
	now, err := groups(c)
	if err == nil && now != s.groups {
		err = ErrGrown
	}
	if err != nil {
		return err
	}
	for _, saved := range s.contents {
		if err := saved.write(); err != nil {
			return err
		}
	}
	return eachMap(c, func(m *ebpf.Map) error {
		if m.Type() != ebpf.ArrayOfMaps {
			return nil
		}
		return eachSegment(m, func(segment *ebpf.Map) error {
			empty := content{m: segment}
			if IsArray(segment) {
				_, empty.values = newRows(segment)
			}
			return empty.write()
		})
	})
}

// eachMap calls f for all maps of a data path that have rows which user space may write.
func eachMap(c *loader.Collection, f func(*ebpf.Map) error) error {
	list := []*ebpf.Map{c.Section(".data.runtime"), c.Section(loader.SharedSection)}
	all := reflect.ValueOf(c.Maps)
	for i := range all.NumField() {
		list = append(list, all.Field(i).Interface().(*ebpf.Map))
	}
	for _, m := range list {
		switch m.Type() {
		case ebpf.Array, ebpf.PerCPUArray, ebpf.Hash, ebpf.PerCPUHash, ebpf.LRUHash, ebpf.LPMTrie, ebpf.ArrayOfMaps:
			if err := f(m); err != nil {
				return fmt.Errorf("%s: %w", m, err)
			}
		}
	}
	return nil
}

// groups returns the number of groups of the connection table.
func groups(c *loader.Collection) (n int, err error) {
	err = eachSegment(c.Maps.Connections, func(*ebpf.Map) error { n++; return nil })
	return n, err
}

// eachSegment calls f for the segments of a growing array.
func eachSegment(outer *ebpf.Map, f func(*ebpf.Map) error) error {
	for i := range outer.MaxEntries() {
		var id ebpf.MapID
		if err := outer.Lookup(i, &id); errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil // segments are made in order
		} else if err != nil {
			return err
		}
		segment, err := ebpf.NewMapFromID(id)
		if err != nil {
			return err
		}
		if err := errors.Join(f(segment), segment.Close()); err != nil {
			return err
		}
	}
	return nil
}

// newRows returns the keys of an array, and empty values.
func newRows(m *ebpf.Map) (keys []uint32, values any) {
	keys = make([]uint32, m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	n := len(keys)
	if m.Type() == ebpf.PerCPUArray {
		n *= ebpf.MustPossibleCPU()
	}
	row := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
	return keys, reflect.MakeSlice(reflect.SliceOf(row), n, n).Interface()
}

// readArray returns all values of an array: a slice of arrays of bytes.
func readArray(m *ebpf.Map) (any, error) {
	keys, values := newRows(m)
	_, err := m.BatchLookup(new(ebpf.MapBatchCursor), keys, values, nil)
	if errors.Is(err, ebpf.ErrKeyNotExist) { // this was the last batch
		err = nil
	}
	return values, err
}

// ArrayBytes returns all values of an array as bytes, by a single system call.
func ArrayBytes(m *ebpf.Map) ([]byte, error) {
	values, err := readArray(m)
	if err != nil {
		return nil, err
	}
	list := reflect.ValueOf(values)
	return unsafe.Slice((*byte)(list.UnsafePointer()), list.Len()*int(m.ValueSize())), nil
}

// IsArray reports whether a map is an array of values, of all CPUs or of each.
func IsArray(m *ebpf.Map) bool { return m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray }

// read reads an array or a hash.
func read(m *ebpf.Map) (content, error) {
	c := content{m: m}
	if IsArray(m) {
		var err error
		c.values, err = readArray(m)
		return c, err
	}
	keys, err := keysOf(m)
	if err != nil {
		return c, err
	}
	for _, key := range keys {
		row, err := m.LookupBytes(key)
		if err != nil {
			return c, err
		}
		c.keys, c.rows = append(c.keys, key), append(c.rows, row)
	}
	return c, nil
}

// Empty removes all rows of a hash.
func Empty(m *ebpf.Map) error { return content{m: m}.write() }

// write writes the content of the map.
func (c content) write() error {
	if IsArray(c.m) {
		keys, _ := newRows(c.m)
		_, err := c.m.BatchUpdate(keys, c.values, nil)
		return err
	}
	keys, err := keysOf(c.m)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := c.m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	for i, key := range c.keys {
		if err := c.m.Put(key, c.rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// keysOf returns the keys of a hash.
func keysOf(m *ebpf.Map) (keys [][]byte, err error) {
	for key, err := m.NextKeyBytes(nil); ; key, err = m.NextKeyBytes(key) {
		if err != nil || key == nil {
			return keys, err
		}
		keys = append(keys, key)
	}
}
