package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms lists the folders of internal/, lowest first: a package imports only its own room and those
// listed before it (docs/adr/0082-house.md).
func rooms() []string {
	return []string{"lb", "host", "event", "pkt", "contract", "config", "kinds", "kernel", "announce", "cluster", "control", "diagnose", "telemetry", "api", "cli"}
}

// TestRooms checks that rooms import only rooms below them.
func TestRooms(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		room, inside, isInside := strings.Cut(path, "/")
		if err != nil || !isInside || !strings.HasSuffix(inside, ".go") || strings.HasSuffix(inside, "_test.go") {
			return err
		}
		found[room] = true
		checkImports(t, path, room)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range rooms() {
		if !found[room] {
			t.Errorf("internal/%s has no Go file", room)
		}
	}
}

// checkImports reports each import of a file from a room above its own.
func checkImports(t *testing.T, path, room string) {
	t.Helper()
	level := slices.Index(rooms(), room)
	if level < 0 {
		t.Errorf("%s is in no room that is listed", path)
		return
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		other, isOurs := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "loxilb/internal/")
		other, _, _ = strings.Cut(other, "/")
		if isOurs && slices.Index(rooms(), other) > level {
			t.Errorf("%s imports %s of room %s, which is above %s", path, spec.Path.Value, other, room)
		}
	}
}
