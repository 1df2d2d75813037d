package access

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := NewAudit(dir)
	for i := range 5 {
		if err := a.Write(Entry{Who: "ann", Method: "POST", Path: fmt.Sprint(i), Result: 200, Revision: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, auditName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info.Mode(), err)
	}
	// A crash has truncated the last line.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"who":"cut`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	a = NewAudit(dir)
	if err := a.Write(Entry{Who: "bob", Path: "5"}); err != nil {
		t.Fatal(err)
	}
	list, err := a.Last(3)
	if err != nil || len(list) != 3 || list[0].Path != "3" || list[2].Who != "bob" || list[2].Time.IsZero() {
		t.Errorf("got %v %+v, want 3 entries, from path 3 to one by bob with a time", err, list)
	}
}

// TestAuditRotates checks that two files of bounded size are kept in spite of concurrent writers,
// and have the newest entries.
func TestAuditRotates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := NewAudit(dir)
	long := strings.Repeat("x", 60_000)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 100 {
				if err := a.Write(Entry{Path: long}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if err := a.Write(Entry{Path: "last"}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("got %v %v, want no error, 2 elements in files", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Size() > auditSize {
			t.Errorf("%s has %d bytes", f.Name(), info.Size())
		}
	}
	list, err := a.Last(200)
	if err != nil || len(list) != 200 || list[199].Path != "last" {
		t.Errorf("%d entries, %v", len(list), err)
	}
}

// TestAuditOfStrangers checks that requests without a token cannot rotate entries out of the audit
// log; the number of unwritten requests is logged.
func TestAuditOfStrangers(t *testing.T) {
	t.Parallel()
	a, now := NewAudit(t.TempDir()), time.Now()
	a.now = func() time.Time { return now }
	write := func(stranger bool) {
		if err := a.Write(Entry{Stranger: stranger}); err != nil {
			t.Fatal(err)
		}
	}
	for range linesPerMinute + 12 {
		write(true)
	}
	write(false)
	now = now.Add(time.Minute)
	write(true)
	list, err := a.Last(1000)
	if err != nil || len(list) != linesPerMinute+2 || list[linesPerMinute].Unrecorded != 12 || list[linesPerMinute+1].Unrecorded != 0 {
		t.Errorf("%v, %d entries, %+v", err, len(list), list[len(list)-2:])
	}
}

// TestAuditOfViewers checks that a viewer, who may change its own password, cannot rotate entries
// out of the audit log. Another viewer's changes are still logged.
func TestAuditOfViewers(t *testing.T) {
	t.Parallel()
	a := NewAudit(t.TempDir())
	for _, who := range []string{"vic", "val"} {
		for range linesPerMinute + 5 {
			if err := a.Write(Entry{Who: who, Role: View.String(), Result: 400}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range linesPerMinute + 5 {
		if err := a.Write(Entry{Who: "opa", Role: Operate.String(), Result: 400}); err != nil {
			t.Fatal(err)
		}
	}
	count := map[string]int{}
	list, err := a.Last(1000)
	for _, e := range list {
		count[e.Who]++
	}
	if err != nil || count["vic"] != linesPerMinute || count["val"] != linesPerMinute || count["opa"] != linesPerMinute+5 || list[2*linesPerMinute].Unrecorded != 5 {
		t.Errorf(`got %v, %v, want no error, count["vic"] == aMinute, count["val"] == aMinute, `+
			`count["opa"] == aMinute+5, list[2*aMinute].Unsaid == 5`,
			err, count)
	}
}

// TestAuditFails checks that a log that was deleted or cannot be written is an error, and that the
// log recovers.
func TestAuditFails(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	a := NewAudit(dir)
	if err := a.Write(Entry{}); err == nil {
		t.Error("an entry was written without a directory")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.Write(Entry{Path: "now"}); err != nil {
		t.Error(err)
	}
	if list, err := a.Last(10); err != nil || len(list) != 1 {
		t.Errorf("got %v %v, want no error, 1 element", list, err)
	}
	if err := os.Remove(filepath.Join(dir, auditName)); err != nil {
		t.Fatal(err)
	}
	if err := a.Write(Entry{Path: "after"}); err != nil {
		t.Error(err)
	}
	if list, err := a.Last(10); err != nil || len(list) != 1 || list[0].Path != "after" {
		t.Errorf(`got %v %v, want no error, 1 element, list[0].Path == "after"`, list, err)
	}
}

// TestAuditFullDisk checks that a full disk truncates only one line. The lines after it are
// complete, also after a restart with a full disk.
func TestAuditFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	full := Entry{Path: strings.Repeat("x", 300)}
	fill := func(a *Audit) {
		t.Helper()
		for range 1000 {
			if a.Write(full) != nil {
				return
			}
		}
		t.Fatal("the disk is not full")
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	first := NewAudit(dir)
	fill(first)
	data, err := os.ReadFile(filepath.Join(dir, auditName))
	if err != nil || !bytes.HasSuffix(data, []byte("}\n")) {
		t.Errorf("a line is cut: ...%q, %v", data[max(0, len(data)-20):], err)
	}
	// A line that a killed process has truncated, and a start without room to terminate it.
	torn, err := os.OpenFile(filepath.Join(dir, auditName), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, _ = torn.Write(bytes.Repeat([]byte("x"), 4096)) // fills the disk
		err = torn.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	second := NewAudit(dir)
	if second.Write(full) == nil {
		t.Fatal("the disk is full, and a line was written")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := second.Write(Entry{Path: "after"}); err != nil {
		t.Fatal(err)
	}
	if list, err := second.Last(1); err != nil || len(list) != 1 || list[0].Path != "after" {
		t.Errorf("the line after the cut one is lost: %v, %v", list, err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}
