package logs

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The bounds: the number of files and the size of each. The last file is being written.
const (
	files    = 4
	fileSize = 256 << 10
	maxLine  = 8 << 10 // a longer line is cut
)

// CurrentFile is the name of the file that is being written.
const CurrentFile = "loxilb.log"

// Ring is a log in a few files in memory. It is an io.Writer; each write must be one or more whole
// lines.
type Ring struct {
	mu      sync.Mutex
	files   []*logFile // oldest first
	written int64      // bytes, ever
	now     func() time.Time
}

type logFile struct {
	name  string
	start int64 // position of its first byte
	lines []line
	size  int64
	time  time.Time // of its last line
}

type line struct {
	at   int64 // position of its first byte
	text string
}

// NewRing returns an empty Ring.
func NewRing() *Ring { return &Ring{now: time.Now} }

// Write appends lines. It cannot fail: a log must not end the program.
func (r *Ring) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for text := range bytes.Lines(b) {
		text = bytes.TrimRight(text, "\r\n")
		if len(text) > maxLine {
			text = text[:maxLine]
		}
		r.add(strings.ToValidUTF8(string(text), "?"))
	}
	return len(b), nil
}

func (r *Ring) add(text string) {
	now := r.now()
	last := len(r.files) - 1
	if last < 0 || r.files[last].size+int64(len(text))+1 > fileSize {
		if last >= 0 {
			old := r.files[last]
			old.name = fmt.Sprintf("loxilb-%s-%d.log", old.time.UTC().Format("20060102T150405Z"), old.start)
		}
		r.files = append(r.files, &logFile{name: CurrentFile, start: r.written})
		if len(r.files) > files {
			r.files = r.files[1:]
		}
		last = len(r.files) - 1
	}
	f := r.files[last]
	f.lines = append(f.lines, line{r.written, text})
	f.size += int64(len(text)) + 1
	f.time = now
	r.written += int64(len(text)) + 1
}

// FileInfo describes a file.
type FileInfo struct {
	Name     string
	Size     int64
	Modified time.Time
}

// Archives returns the files that are no longer written, oldest first.
func (r *Ring) Archives() []FileInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []FileInfo
	for _, f := range r.files[:max(0, len(r.files)-1)] {
		out = append(out, FileInfo{f.name, f.size, f.time})
	}
	return out
}

// File returns the text of a file.
func (r *Ring) File(name string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.find(name)
	if f == nil {
		return "", false
	}
	var b strings.Builder
	for _, l := range f.lines {
		b.WriteString(l.text + "\n")
	}
	return b.String(), true
}

func (r *Ring) find(name string) *logFile {
	for _, f := range r.files {
		if f.name == name {
			return f
		}
	}
	return nil
}

// Page is some of the lines of a file, or of the whole log.
type Page struct {
	Lines   []string
	Total   int64 // bytes of the requested log
	Next    int64 // position at which the next page begins
	More    bool  // whether there is one
	Scanned int64 // bytes that were looked at
}

// Read returns up to a number of matching lines, from a position on: 0 is the oldest line kept.
// name is the name of a file, or empty for the whole log. It returns false for a missing file.
func (r *Ring) Read(name string, from int64, count int, matches func(line string) bool) (Page, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.files
	if name != "" && !(name == CurrentFile && len(r.files) == 0) {
		f := r.find(name)
		if f == nil {
			return Page{}, false
		}
		list = []*logFile{f}
	}
	if from > r.written {
		from = 0 // of a daemon that ran before this one
	}
	p := Page{Next: max(0, from)}
	for _, f := range list {
		p.Total += f.size
		for _, l := range f.lines {
			switch {
			case l.at < from:
				continue
			case len(p.Lines) == count:
				p.More = p.More || matches(l.text)
				continue
			}
			p.Next = l.at + int64(len(l.text)) + 1
			p.Scanned += int64(len(l.text)) + 1
			if matches(l.text) {
				p.Lines = append(p.Lines, l.text)
			}
		}
	}
	return p, true
}
