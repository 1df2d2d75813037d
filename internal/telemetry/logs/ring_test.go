package logs

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func all(string) bool { return true }

// TestPages checks that consecutive pages contain the whole log, each line once.
func TestPages(t *testing.T) {
	t.Parallel()
	r := NewRing()
	if p, ok := r.Read(CurrentFile, 0, 10, all); !ok || p.More || len(p.Lines) != 0 {
		t.Errorf("an empty log: %+v %v", p, ok)
	}
	for i := range 25 {
		fmt.Fprintf(r, "line %d\n", i)
	}
	var got []string
	cursor, pages := int64(0), 0
	for {
		p, ok := r.Read("", cursor, 10, all)
		if !ok {
			t.Fatal("there is no log")
		}
		got, cursor = append(got, p.Lines...), p.Next
		if pages++; !p.More {
			break
		}
	}
	if len(got) != 25 || got[0] != "line 0" || got[24] != "line 24" || pages != 3 {
		t.Errorf("%d pages of %q", pages, got)
	}
	if p, _ := r.Read("", cursor, 10, all); len(p.Lines) != 0 || p.More || p.Next != cursor {
		t.Errorf("behind the end: %+v", p)
	}
	if p, _ := r.Read("", 1<<40, 1, all); len(p.Lines) != 1 || p.Lines[0] != "line 0" {
		t.Errorf("a cursor beyond the end returns %+v, want the oldest line", p)
	}
	fmt.Fprintln(r, "later")
	if p, _ := r.Read("", cursor, 10, all); len(p.Lines) != 1 || p.Lines[0] != "later" {
		t.Errorf("what came later: %+v", p)
	}
	if p, _ := r.Read("", 0, 2, func(s string) bool { return strings.HasSuffix(s, "4") }); len(p.Lines) != 2 || p.Lines[1] != "line 14" || !p.More {
		t.Errorf("lines that match: %+v", p)
	}
	if _, ok := r.Read("../etc/passwd", 0, 1, all); ok {
		t.Error("a file that there is not was read")
	}
}

// TestBounded checks that endless logging uses no more memory than the files have, with concurrent
// writers and readers.
func TestBounded(t *testing.T) {
	t.Parallel()
	r := NewRing()
	r.now = func() time.Time { return time.Unix(0, 0) }
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 1000 {
				fmt.Fprintln(r, strings.Repeat("x", 2*maxLine))
			}
		})
	}
	running.Go(func() {
		for range 100 {
			r.Read("", 0, 1000, all)
			r.Archives()
		}
	})
	running.Wait()
	list := r.Archives()
	if len(list) != files-1 {
		t.Fatalf("%d archives: %+v", len(list), list)
	}
	names := map[string]bool{CurrentFile: true}
	for _, f := range list {
		text, ok := r.File(f.Name)
		if !ok || int64(len(text)) != f.Size || f.Size > fileSize || names[f.Name] {
			t.Errorf("%+v: %d bytes, %v", f, len(text), ok)
		}
		names[f.Name] = true
	}
	if p, _ := r.Read("", 0, 1<<20, all); p.Total > files*fileSize || len(p.Lines) < 3*fileSize/(maxLine+1)-files || len(p.Lines[0]) != maxLine {
		t.Errorf("%d lines, %d bytes", len(p.Lines), p.Total)
	}
}
