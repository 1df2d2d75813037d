package objects

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// ledgerFile is in the state directory.
const ledgerFile = "kernel-objects"

// Ledger records the objects that this load balancer made itself: only those are removed
// automatically. The kernel cannot record the owner of a forwarding table's entry or of a bridge's
// member.
//
// An object is recorded before it is made, and removed from the ledger after it is deleted. A
// process that dies in between leaves a record of an object that is missing or no longer desired;
// the next start corrects both. Records of another boot or namespace are invalid. They need not be
// synced to disk, since their objects do not survive a reboot.
type Ledger struct {
	mu    sync.Mutex
	path  string // "": none, for tests
	file  *os.File
	made  map[ledgerKey][]byte // the made objects, as JSON
	lines int                  // of the file
	life  string
}

type ledgerKey struct{ kind, key string }

// line is a line of the file. The first line identifies boot and namespace. The others record that
// an object is made or, without an object, deleted.
type line struct {
	Life   string          `json:"life,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	Key    string          `json:"key,omitempty"`
	Object json.RawMessage `json:"object,omitempty"`
}

// OpenLedger reads the ledger in a directory, or begins one; "" keeps it in memory.
func (k *Kernel) OpenLedger(dir string) (*Ledger, error) {
	l := &Ledger{made: map[ledgerKey][]byte{}, life: k.life}
	if dir == "" {
		return l, nil
	}
	l.path = filepath.Join(dir, ledgerFile)
	data, err := os.ReadFile(l.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the ledger of objects made in the kernel: %w", err)
	}
	l.read(data)
	// A read-only disk does not prevent a start: the next record creates the file, or fails.
	_ = l.rewrite()
	return l, nil
}

// read reads the complete lines.
func (l *Ledger) read(data []byte) {
	in := bufio.NewScanner(bytes.NewReader(data))
	in.Buffer(nil, 1<<20)
	for first := true; in.Scan(); first = false {
		var n line
		if json.Unmarshal(in.Bytes(), &n) != nil {
			return // the last, cut short
		}
		switch {
		case first && n.Life != l.life:
			return
		case first:
		case n.Object == nil:
			delete(l.made, ledgerKey{n.Kind, n.Key})
		default:
			l.made[ledgerKey{n.Kind, n.Key}] = n.Object
		}
	}
}

// rewrite replaces the file by a file of the existing objects.
func (l *Ledger) rewrite() error {
	lines := []line{{Life: l.life}}
	for n, object := range l.made {
		lines = append(lines, line{Kind: n.kind, Key: n.key, Object: object})
	}
	data, err := encode(lines)
	if err != nil {
		return err
	}
	temporary := l.path + ".new"
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.Write(data); err == nil {
		err = os.Rename(temporary, l.path)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if l.file != nil {
		_ = l.file.Close() // the other file has all of it
	}
	l.file, l.lines = file, len(lines)
	return nil
}

func encode(lines []line) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, n := range lines {
		if err := enc.Encode(n); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// Get returns the object made with a key as JSON, or nil.
func (l *Ledger) Get(kind, key string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made[ledgerKey{kind, key}]
}

// Keys returns the keys of all that was made of a kind.
func (l *Ledger) Keys(kind string) (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.made {
		if n.kind == kind {
			keys = append(keys, n.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Record records objects that are about to be made, all at once.
func (l *Ledger) Record(kind string, objects map[string]any) error {
	var lines []line
	for key, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			return err
		}
		lines = append(lines, line{Kind: kind, Key: key, Object: data})
	}
	return l.write(lines)
}

// Forget removes objects from the ledger that were deleted, or not made.
func (l *Ledger) Forget(kind string, keys ...string) error {
	var lines []line
	for _, key := range keys {
		if l.Get(kind, key) != nil {
			lines = append(lines, line{Kind: kind, Key: key})
		}
	}
	return l.write(lines)
}

func (l *Ledger) write(lines []line) error {
	if len(lines) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path != "" {
		if err := l.append(lines); err != nil {
			return fmt.Errorf("write the ledger of objects made in the kernel: %w", err)
		}
	}
	for _, n := range lines {
		if n.Object == nil {
			delete(l.made, ledgerKey{n.Kind, n.Key})
		} else {
			l.made[ledgerKey{n.Kind, n.Key}] = n.Object
		}
	}
	if l.path != "" && l.lines > 1000+4*len(l.made) {
		_ = l.rewrite() // the existing file has all of it, and grows until this succeeds
	}
	return nil
}

// append writes lines at once. Partially written lines are removed again.
func (l *Ledger) append(lines []line) error {
	if l.file == nil {
		if err := l.rewrite(); err != nil {
			return err
		}
	}
	data, err := encode(lines)
	if err != nil {
		return err
	}
	before, err := l.file.Seek(0, 2)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(data); err != nil {
		if l.file.Truncate(before) != nil {
			_ = l.file.Close() // it may end within a line: the next append rewrites it
			l.file = nil
		}
		return err
	}
	l.lines += len(lines)
	return nil
}

// Close closes the file.
func (l *Ledger) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
