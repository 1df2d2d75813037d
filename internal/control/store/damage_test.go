package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// threeItems returns a directory with three items, and the states at revisions 0 to 3. The items
// are in the snapshot if saved is true, and otherwise in the journal.
func threeItems(t *testing.T, saved bool) (dir string, states [4]string) {
	t.Helper()
	dir = t.TempDir()
	s := openStore(t, dir)
	states[0] = dump(s.Snapshot())
	for i := 1; i <= 3; i++ {
		mustCommit(t, s, "rest", put(numbered(i, 1)))
		states[i] = dump(s.Snapshot())
		if saved {
			closeStore(t, s)
			s = openStore(t, dir)
		}
	}
	closeStore(t, s)
	return dir, states
}

// without returns a state without the lines that contain the name of an item.
func without(state, item string) string {
	var kept []string
	for line := range strings.Lines(state) {
		if !strings.Contains(line, item) {
			kept = append(kept, line)
		}
	}
	return strings.Replace(strings.Join(kept, ""), "3 items, 3 parts", "2 items, 2 parts", 1)
}

// unversioned returns a state of revision 3 whose versions were lost with the header.
func unversioned(state string) string {
	return strings.NewReplacer("rest 1:", "rest 3:", "rest 2:", "rest 3:").Replace(state)
}

// flip changes one byte of the n-th line of a file.
func flip(t *testing.T, dir, name string, n int) {
	t.Helper()
	lines := strings.SplitAfter(readFile(t, dir, name), "\n")
	b := []byte(lines[n-1])
	b[len(b)/2] ^= 1
	lines[n-1] = string(b)
	writeFile(t, dir, name, strings.Join(lines, ""))
}

func dropLine(t *testing.T, dir, name string, n int) {
	t.Helper()
	lines := strings.SplitAfter(readFile(t, dir, name), "\n")
	writeFile(t, dir, name, strings.Join(append(lines[:n-1:n-1], lines[n:]...), ""))
}

// P6
func TestDamage(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		saved  bool
		damage func(t *testing.T, dir string)
		want   func(states [4]string) string
		aside  string
		reason string
	}{
		{
			name: "middle of the journal", damage: func(t *testing.T, dir string) { flip(t, dir, journalName(0), 3) },
			want: func(s [4]string) string { return s[1] }, aside: journalName(0), reason: "its checksum does not match",
		},
		{
			name: "last line of the journal, whole", damage: func(t *testing.T, dir string) { flip(t, dir, journalName(0), 4) },
			want: func(s [4]string) string { return s[2] }, aside: journalName(0), reason: "its checksum does not match",
		},
		{
			name: "header of the journal", damage: func(t *testing.T, dir string) { flip(t, dir, journalName(0), 1) },
			want: func(s [4]string) string { return s[0] }, aside: journalName(0), reason: "its checksum does not match",
		},
		{
			name: "a line of the journal lost", damage: func(t *testing.T, dir string) { dropLine(t, dir, journalName(0), 3) },
			want: func(s [4]string) string { return s[1] }, aside: journalName(0), reason: "it is revision 3 where 2 should be",
		},
		{
			name: "journal empty", damage: func(t *testing.T, dir string) { writeFile(t, dir, journalName(0), "") },
			want: func(s [4]string) string { return s[0] }, aside: journalName(0), reason: "it is empty",
		},
		{
			name: "journal is garbage", damage: func(t *testing.T, dir string) { writeFile(t, dir, journalName(0), "\x00\x00\n\n") },
			want: func(s [4]string) string { return s[0] }, aside: journalName(0), reason: "it is not a line of a state file",
		},
		{
			name: "a line of the snapshot", saved: true, damage: func(t *testing.T, dir string) { flip(t, dir, snapshotName, 3) },
			want: func(s [4]string) string { return without(s[3], "item-00002") }, aside: snapshotName, reason: "its checksum does not match",
		},
		{
			name: "snapshot cut in a line", saved: true, damage: func(t *testing.T, dir string) {
				content := readFile(t, dir, snapshotName)
				writeFile(t, dir, snapshotName, content[:len(content)-1])
			},
			want: func(s [4]string) string { return without(s[3], "item-00003") }, aside: snapshotName, reason: "it is not a line of a state file",
		},
		{
			name: "snapshot cut between lines", saved: true, damage: func(t *testing.T, dir string) { dropLine(t, dir, snapshotName, 4) },
			want: func(s [4]string) string { return unversioned(without(s[3], "item-00003")) }, aside: snapshotName, reason: "it should have 3 objects, and has 2 lines",
		},
		{
			name: "snapshot without header", saved: true, damage: func(t *testing.T, dir string) { flip(t, dir, snapshotName, 1) },
			want: func(s [4]string) string { return unversioned(s[3]) }, aside: snapshotName, reason: "its checksum does not match",
		},
		{
			name: "snapshot missing", saved: true, damage: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, snapshotName)); err != nil {
					t.Fatal(err)
				}
			},
			want:  func([4]string) string { return "revision 3, 0 items, 0 parts\n" },
			aside: journalName(3), reason: "it follows revision 3, but the files before it end at 0",
		},
		{
			name: "journal of another name", damage: func(t *testing.T, dir string) {
				if err := os.Rename(filepath.Join(dir, journalName(0)), filepath.Join(dir, journalName(1))); err != nil {
					t.Fatal(err)
				}
			},
			want: func(s [4]string) string { return s[0] }, aside: journalName(1), reason: "its header claims to follow revision 0",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, states := threeItems(t, c.saved)
			c.damage(t, dir)
			damaged := ""
			if b, err := os.ReadFile(filepath.Join(dir, c.aside)); err == nil {
				damaged = string(b)
			}
			want := c.want(states)

			var logged bytes.Buffer
			s, err := Open(dir, slog.New(slog.NewTextHandler(&logged, nil)), NewTable(itemKind()))
			if err != nil {
				t.Fatal(err)
			}
			wantDump(t, s.Snapshot(), want)
			closeStore(t, s)
			text := logged.String()
			if strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, c.reason) || !strings.Contains(text, c.aside) {
				t.Errorf("logged %s", text)
			}
			kept := 0
			for _, name := range asideFiles(t, dir) {
				kept++
				if !strings.HasPrefix(name, c.aside) || readFile(t, dir, name) != damaged {
					t.Errorf("%s differs from the damaged file", name)
				}
			}
			if kept != 1 {
				t.Errorf("%d files set aside", kept)
			}

			logged.Reset() // the next start reads a clean directory with the same state
			s, err = Open(dir, slog.New(slog.NewTextHandler(&logged, nil)), NewTable(itemKind()))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			wantDump(t, s.Snapshot(), want)
			if logged.Len() > 0 || len(asideFiles(t, dir)) != 1 {
				t.Errorf("the second start logs %s", logged.String())
			}
		})
	}
}

func asideFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.damaged-*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return names
}

// TestDamageBeforeALaterJournal checks that after damage in one journal the later ones are not
// replayed, and not deleted.
func TestDamageBeforeALaterJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	mustCommit(t, s, "rest", put(numbered(1, 1)))
	want := dump(s.Snapshot())
	mustCommit(t, s, "rest", put(numbered(2, 1)))
	if err := s.disk.newJournal(2, bareVersion); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, "rest", put(numbered(3, 1)))
	closeStore(t, s)
	for name, damage := range map[string]func(string){
		"flipped": func(dir string) { flip(t, dir, journalName(0), 3) },
		"short":   func(dir string) { dropLine(t, dir, journalName(0), 3) },
	} {
		damaged := copyDir(t, dir)
		damage(damaged)
		wantDump(t, openStore(t, damaged).Snapshot(), want)
		if aside := asideFiles(t, damaged); len(aside) != 2 {
			t.Errorf("%s: %v set aside", name, aside)
		}
	}
}

// P7
func TestNewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	for _, file := range []string{snapshotName, journalName(3)} {
		dir, _ := threeItems(t, true)
		kind, _, _ := strings.Cut(strings.TrimSuffix(file, fileSuffix), "-")
		newer, err := encodeLine(map[string]any{"file": kind, "version": 4, "revision": 3, "novelty": true})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, dir, file, string(newer)+"something new\n")
		if file != snapshotName {
			flip(t, dir, snapshotName, 2) // even then nothing is changed
		}
		writeFile(t, dir, snapshotName+tempSuffix, "left over")
		before := make(map[string]string)
		for _, name := range files(t, dir) {
			before[name] = readFile(t, dir, name)
		}
		_, err = Open(dir, slog.New(slog.NewTextHandler(t.Output(), nil)), NewTable(itemKind()))
		want := "read the state: state file " + filepath.Join(dir, file) +
			" was written by a newer loxilb: it has version 4, this loxilb supports versions up to 3; the file is unchanged"
		if !errors.Is(err, ErrNewer) || err.Error() != want {
			t.Errorf("Open fails with %v, want %s", err, want)
		}
		after := make(map[string]string)
		for _, name := range files(t, dir) {
			after[name] = readFile(t, dir, name)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("-before +after\n%s", diff)
		}
	}
}
