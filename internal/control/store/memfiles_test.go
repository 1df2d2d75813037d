package store

import (
	"cmp"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// memFiles is a file system in memory. It distinguishes the content that is visible from the
// content that a power loss leaves, and can make one call fail.
type memFiles struct {
	visible map[string]*inode // by path
	durable map[string]*inode // by path, as a power loss leaves them
	pending []entryChange     // changes from durable to visible, in order

	snapshotLock sync.Mutex // held to block writing of snapshots
	mu           sync.Mutex // one call at a time

	calls      int
	failAt     int                                             // the index of the call that fails; -1: none
	fault      fault                                           // in which way it fails
	tearPart   int                                             // with tear: the part of a write that is done: a byte, a half, all but a byte
	tornSize   int                                             // that part, in bytes
	beforeCall func(op string, size int, do func(n int) error) // called before each call
	failedCall string                                          // the call that has failed
	failedSize int                                             // size of the write that failed
}

type fault int

const (
	failBefore fault = iota // an error, nothing done
	failAfter               // an error, everything done
	tear                    // an error, part of a write done
)

type inode struct {
	dir    bool
	data   []byte
	synced []byte // data, as a power loss leaves it
	lost   [2]int // the range of data that a failed sync has dropped: later syncs do not write it
}

// entryChange sets a path's inode, or removes the path if it is nil.
type entryChange struct {
	path string
	node *inode
}

func newMemFiles() *memFiles {
	root := &inode{dir: true}
	return &memFiles{visible: map[string]*inode{"/": root}, durable: map[string]*inode{"/": root}, failAt: -1}
}

// call counts a call, and runs do unless the call fails.
func (m *memFiles) call(op, path string, size int, do func(n int) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.calls
	m.calls++
	if m.beforeCall != nil {
		m.beforeCall(op, size, do)
	}
	if n != m.failAt {
		return do(size)
	}
	m.failedCall, m.failedSize = op, size
	failed := &fs.PathError{Op: op, Path: path, Err: syscall.EIO}
	switch m.fault {
	case failAfter:
		if err := do(size); err != nil {
			return err
		}
	case tear:
		if size > 0 {
			failed.Err = syscall.ENOSPC
			m.tornSize = [...]int{1, size / 2, size - 1}[m.tearPart]
			if err := do(m.tornSize); err != nil {
				return err
			}
		}
	}
	return failed
}

func (m *memFiles) change(path string, node *inode) {
	m.pending = append(m.pending, entryChange{path, node})
	set(m.visible, path, node)
}

func set(entries map[string]*inode, path string, node *inode) {
	if node == nil {
		delete(entries, path)
	} else {
		entries[path] = node
	}
}

func (m *memFiles) node(op, path string) (*inode, error) {
	if n := m.visible[path]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: path, Err: syscall.ENOENT}
}

// after returns a file system as a power loss now could leave it: with the first of the pending
// changes, as many as entries says, and with or without unsynced data.
func (m *memFiles) after(entries int, data bool) *memFiles {
	out := newMemFiles()
	tree := maps.Clone(m.durable)
	for _, c := range m.pending[:entries] {
		set(tree, c.path, c.node)
	}
	copies := map[*inode]*inode{}
	for path, node := range tree {
		above := filepath.Dir(path)
		for above != "/" && tree[above] != nil {
			above = filepath.Dir(above)
		}
		if tree[above] == nil {
			continue // in a directory that was not synced
		}
		c := copies[node]
		if c == nil {
			content := slices.Clone(node.synced)
			if data {
				content = slices.Clone(node.data)
			}
			c = &inode{dir: node.dir, data: content, synced: slices.Clone(content)}
			copies[node] = c
		}
		out.visible[path], out.durable[path] = c, c
	}
	return out
}

func (m *memFiles) Stat(path string) (info fs.FileInfo, err error) {
	return info, m.call("stat", path, 0, func(int) error {
		n, err := m.node("stat", path)
		if err == nil {
			info = memInfo{filepath.Base(path), n}
		}
		return err
	})
}

func (m *memFiles) Mkdir(path string) error {
	return m.call("mkdir", path, 0, func(int) error {
		if m.visible[path] != nil {
			return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.EEXIST}
		}
		m.change(path, &inode{dir: true})
		return nil
	})
}

func (m *memFiles) OpenDir(path string) (directory, error) {
	err := m.call("open directory", path, 0, func(int) error {
		_, err := m.node("open", path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return memDirectory{m, path}, nil
}

func (m *memFiles) ReadDir(path string) (list []fs.DirEntry, err error) {
	return list, m.call("read directory", path, 0, func(int) error {
		for _, p := range slices.Sorted(maps.Keys(m.visible)) {
			if filepath.Dir(p) == path && p != path {
				list = append(list, fs.FileInfoToDirEntry(memInfo{filepath.Base(p), m.visible[p]}))
			}
		}
		return nil
	})
}

func (m *memFiles) ReadFile(path string) (content []byte, err error) {
	return content, m.call("read", path, 0, func(int) error {
		n, err := m.node("read", path)
		if err == nil {
			content = slices.Clone(n.data)
		}
		return err
	})
}

func (m *memFiles) Create(path string) (f file, err error) {
	if filepath.Base(path) == snapshotName+tempSuffix {
		m.snapshotLock.Lock()
		defer m.snapshotLock.Unlock()
	}
	return f, m.call("create", path, 0, func(int) error {
		n := m.visible[path]
		if n == nil {
			n = &inode{}
			m.change(path, n)
		}
		n.data, n.synced, n.lost = nil, nil, [2]int{}
		f = &memFile{m, n, path, 0}
		return nil
	})
}

func (m *memFiles) Open(path string) (f file, err error) {
	return f, m.call("open", path, 0, func(int) error {
		n, err := m.node("open", path)
		f = &memFile{m, n, path, 0}
		return err
	})
}

func (m *memFiles) Rename(from, to string) error {
	return m.call("rename", to, 0, func(int) error {
		n, err := m.node("rename", from)
		if err != nil {
			return err
		}
		// A rename is one change, as it is on disk completely or not at all.
		m.pending = append(m.pending, entryChange{to, n})
		delete(m.visible, from)
		m.visible[to] = n
		m.pending = slices.DeleteFunc(m.pending, func(c entryChange) bool { return c.path == from })
		delete(m.durable, from)
		return nil
	})
}

func (m *memFiles) Link(from, to string) error {
	return m.call("link", to, 0, func(int) error {
		n, err := m.node("link", from)
		if err == nil {
			m.change(to, n)
		}
		return err
	})
}

func (m *memFiles) Remove(path string) error {
	return m.call("remove", path, 0, func(int) error {
		_, err := m.node("remove", path)
		if err == nil {
			m.change(path, nil)
		}
		return err
	})
}

type memDirectory struct {
	m    *memFiles
	path string
}

func (d memDirectory) Sync() error {
	return d.m.call("sync directory", d.path, 0, func(int) error {
		var left []entryChange
		for _, c := range d.m.pending {
			if filepath.Dir(c.path) == d.path {
				set(d.m.durable, c.path, c.node)
			} else {
				left = append(left, c)
			}
		}
		d.m.pending = left
		return nil
	})
}

func (d memDirectory) plain(op string) error {
	return d.m.call(op, d.path, 0, func(int) error { return nil })
}
func (d memDirectory) Lock() error   { return d.plain("lock") }
func (d memDirectory) Unlock() error { return d.plain("unlock") }
func (d memDirectory) Close() error  { return d.plain("close directory") }

type memFile struct {
	m    *memFiles
	node *inode
	path string
	at   int64
}

func (f *memFile) Write(b []byte) (n int, err error) {
	n, err = f.WriteAt(b, f.at)
	f.at += int64(n)
	return n, err
}

func (f *memFile) WriteAt(b []byte, at int64) (done int, err error) {
	return done, f.m.call("write", f.path, len(b), func(n int) error {
		if end := int(at) + n; end > len(f.node.data) {
			f.node.data = append(f.node.data, make([]byte, end-len(f.node.data))...)
		}
		done = copy(f.node.data[at:], b[:n])
		return nil
	})
}

func (f *memFile) Truncate(size int64) error {
	return f.m.call("truncate", f.path, 0, func(int) error {
		f.node.data = f.node.data[:size]
		f.node.lost[1] = min(f.node.lost[1], int(size))
		return nil
	})
}

// Sync drops unwritten data if it fails, and succeeds the next time, as on Linux.
func (f *memFile) Sync() error {
	n := f.node
	done := false
	err := f.m.call("sync", f.path, 0, func(int) error {
		done = true
		n.synced = slices.Clone(n.data)
		for i := n.lost[0]; i < n.lost[1]; i++ {
			n.synced[i] = 0
		}
		return nil
	})
	if !done && len(n.data) > len(n.synced) {
		n.lost = [2]int{len(n.synced), len(n.data)}
	}
	return err
}

func (f *memFile) Datasync() error { return f.Sync() }
func (f *memFile) Close() error {
	return f.m.call("close", f.path, 0, func(int) error { return nil })
}

type memInfo struct {
	name string
	node *inode
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return int64(len(i.node.data)) }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.node.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.node.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

// listing returns the names and contents of all files, for messages of tests.
func (m *memFiles) listing() string {
	var b strings.Builder
	for _, path := range slices.SortedFunc(maps.Keys(m.visible), cmp.Compare[string]) {
		if n := m.visible[path]; !n.dir {
			b.WriteString("--- " + path + "\n" + string(n.data) + "\n")
		}
	}
	return b.String()
}
