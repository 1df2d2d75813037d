package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The audit log is JSON lines in the state directory, in two files of limited size; starting a new
// one deletes the older one.
const (
	auditName = "audit.jsonl"
	auditSize = 8 << 20
)

// linesPerMinute is the limit of entries for callers without the right to make changes, who could
// otherwise overwrite the record of changes. Each viewer has its own limit; callers without a token
// share one.
const linesPerMinute = 30

// Entry is one request.
type Entry struct {
	Time       time.Time `json:"time"`
	Who        string    `json:"who"`
	Role       string    `json:"role,omitempty"`
	From       string    `json:"from"`
	Method     string    `json:"method"`
	Path       string    `json:"path"`
	Objects    []string  `json:"objects,omitempty"`  // the first few changed objects
	Result     int       `json:"result"`             // the status of the answer
	Error      string    `json:"error,omitempty"`    // why it was refused
	Revision   uint64    `json:"revision,omitempty"` // the revision that the change has made
	Unrecorded int       `json:"unsaid,omitempty"`   // preceding requests that a limit excluded
	Stranger   bool      `json:"-"`                  // refused for lack of a token or of rights
}

// Audit is the audit log.
type Audit struct {
	dir string
	now func() time.Time

	mu         sync.Mutex
	file       *os.File
	size       int64
	minute     time.Time      // the minute being counted
	perViewer  map[string]int // lines of each viewer, and of strangers together
	suppressed int
}

// NewAudit returns the audit log of a state directory. The file is opened with the first entry.
func NewAudit(dir string) *Audit { return &Audit{dir: dir, now: time.Now} }

func (a *Audit) open() error {
	f, err := os.OpenFile(filepath.Join(a.dir, auditName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.file, a.size = f, info.Size()
	if err := a.endLine(); err != nil { // the next request tries again
		a.file = nil
		return errors.Join(fmt.Errorf("end a line of the audit log that was cut: %w", err), f.Close())
	}
	return nil
}

// endLine terminates a line that a crash has truncated, so the next one is valid.
func (a *Audit) endLine() error {
	path := filepath.Join(a.dir, auditName)
	f, err := os.Open(path)
	if err != nil || a.size == 0 {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, a.size-1); err != nil || last[0] == '\n' {
		return err
	}
	n, err := a.file.Write([]byte("\n"))
	a.size += int64(n)
	return err
}

// Close closes the file.
func (a *Audit) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}

// Write adds an entry.
func (a *Audit) Write(e Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.Time = a.now().UTC()
	if !a.mayLog(&e) {
		a.suppressed++
		return nil
	}
	e.Unrecorded = a.suppressed
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if a.file != nil && !a.isCurrent() {
		_ = a.file.Close() // of a file that was moved or deleted
		a.file = nil
	}
	if a.file == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	if a.size > 0 && a.size+int64(len(line)) > auditSize {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	// One call, so a process that dies leaves a whole line or none.
	n, err := a.file.Write(line)
	if err != nil {
		return fmt.Errorf("write the audit log: %w", errors.Join(err, a.truncate(n)))
	}
	a.size += int64(n)
	a.suppressed = 0
	return nil
}

// truncate removes the last n bytes of a line that a full disk has cut: the next line would become
// part of it. If that fails, the next request opens the file again, which ends the line.
func (a *Audit) truncate(n int) error {
	if n <= 0 || a.file.Truncate(a.size) == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}

// isCurrent reports whether the open file still has its name: it may have been moved or deleted.
func (a *Audit) isCurrent() bool {
	named, err1 := os.Stat(filepath.Join(a.dir, auditName))
	open, err2 := a.file.Stat()
	return err1 == nil && err2 == nil && os.SameFile(named, open)
}

func (a *Audit) mayLog(e *Entry) bool {
	who := "viewer " + e.Who
	switch {
	case e.Stranger:
		who = "strangers"
	case e.Role != View.String():
		return true
	}
	if e.Time.Sub(a.minute) >= time.Minute {
		a.minute, a.perViewer = e.Time, map[string]int{}
	}
	a.perViewer[who]++
	return a.perViewer[who] <= linesPerMinute
}

func (a *Audit) rotate() error {
	path := filepath.Join(a.dir, auditName)
	if err := os.Rename(path, path+".1"); err != nil {
		return fmt.Errorf("begin a new file of the audit log: %w", err)
	}
	err := a.file.Close()
	a.file = nil
	return errors.Join(err, a.open())
}

// Last returns the newest n entries, oldest first. It skips a line that a crash has truncated.
func (a *Audit) Last(count int) ([]Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Entry
	for _, name := range [...]string{auditName, auditName + ".1"} {
		if len(out) >= count {
			break
		}
		data, err := os.ReadFile(filepath.Join(a.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		out = append(parse(data, count-len(out)), out...)
	}
	return out, nil
}

// parse returns the last count entries of a file.
func parse(data []byte, count int) (out []Entry) {
	for len(data) > 0 && len(out) < count {
		data = bytes.TrimRight(data, "\n")
		begin := bytes.LastIndexByte(data, '\n') + 1
		var e Entry
		if json.Unmarshal(data[begin:], &e) == nil {
			out = append(out, e)
		}
		data = data[:begin]
	}
	slices.Reverse(out)
	return out
}
