package announce

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/test/await"
)

// writeScript returns a program in a folder that only root can write.
func writeScript(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "ka_hook.sh")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

// runHook runs a hook for changes that were made before it started, and returns its log.
func runHook(t *testing.T, file string, optional bool, changes ...RoleChange) string {
	t.Helper()
	var log bytes.Buffer
	h := NewRoleHook(file, optional, slog.New(slog.NewTextHandler(&log, nil)))
	for _, c := range changes {
		h.Changed(c)
	}
	for {
		c, ok := h.next()
		if !ok {
			return log.String()
		}
		h.run(t.Context(), c)
	}
}

// TestRun checks that the program gets instance, state and VIP, the last of each instance.
func TestRun(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	file := writeScript(t, 0o755, `echo "$#: $1 $2 $3" >> `+out+"\necho done\n")
	log := runHook(t, file, true, RoleChange{"a", "MASTER", "20.20.20.1"}, RoleChange{"b.C_-9", "FAULT", "0.0.0.0"}, RoleChange{"a", "BACKUP", "20.20.20.1"})
	got, err := os.ReadFile(out)
	if want := "3: b.C_-9 FAULT 0.0.0.0\n3: a BACKUP 20.20.20.1\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if strings.Count(log, "role hook was run") != 2 || !strings.Contains(log, "output=done") {
		t.Errorf(`got %v, want "role hook was run" twice in log, "output=done" in log`, log)
	}
}

// TestNotRun checks that a program that others can write is not run, and that the exit status of a
// run is logged.
func TestNotRun(t *testing.T) {
	t.Parallel()
	loose := writeScript(t, 0o755, "exit 0\n")
	if err := os.Chmod(filepath.Dir(loose), 0o777); err != nil { //nolint:gosec // the tested case
		t.Fatal(err)
	}
	foreign := writeScript(t, 0o755, "exit 0\n")
	if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Skip("only root may give files away")
	}
	for file, want := range map[string]string{
		writeScript(t, 0o777, "exit 0\n"): "users other than root may write",
		loose:                             "users other than root may write",
		foreign:                           "is not owned by root",
		writeScript(t, 0o755, "echo no; exit 3\n"):                  "exit status 3",
		writeScript(t, 0o644, "exit 0\n"):                           "permission denied",
		filepath.Dir(writeScript(t, 0o755, "exit 0\n")):             "is not a regular file",
		filepath.Join(t.TempDir(), "nothing"):                       "no such file",
		writeScript(t, 0o755, "head -c 100000 /dev/zero; exit 4\n"): "exit status 4",
	} {
		if log := runHook(t, file, false, RoleChange{"a", "MASTER", "0.0.0.0"}); !strings.Contains(log, want) || strings.Contains(log, "was run") || len(log) > 4000 {
			t.Errorf("%s: %s\nwant %s", file, log, want)
		}
	}
	if log := runHook(t, filepath.Join(t.TempDir(), "nothing"), true, RoleChange{"a", "MASTER", "0.0.0.0"}); log != "" {
		t.Errorf("one that need not be there: %s", log)
	}
}

// awaitFile waits for a file.
func awaitFile(t *testing.T, name string) {
	t.Helper()
	await.NoError(t, 20*time.Second, func() error { _, err := os.Stat(name); return err })
}

// TestEnds checks that a run, with its children, ends with the daemon.
func TestEnds(t *testing.T) {
	t.Parallel()
	begun := filepath.Join(t.TempDir(), "begun")
	h := NewRoleHook(writeScript(t, 0o755, "touch "+begun+"; sleep 1000 & sleep 1000\n"), true, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { h.Run(ctx); close(done) }()
	h.Changed(RoleChange{"a", "MASTER", "0.0.0.0"})
	awaitFile(t, begun)
	cancel()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a run that hangs keeps the daemon from ending")
	}
	var none *RoleHook
	none.Changed(RoleChange{fmt.Sprint(1), "", ""}) // no hook is no error
}

// TestNames checks that a name with characters that are special to a script is not passed to it,
// and is logged once.
func TestNames(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	file := writeScript(t, 0o755, "echo run >> "+out+"\n")
	for _, name := range []string{"", "-rf", "a b", "$(id)", "a;b", "../a", "a\nb", "\u00e4", "a\x00"} {
		log := runHook(t, file, false, RoleChange{name, "MASTER", "0.0.0.0"}, RoleChange{name, "BACKUP", "0.0.0.0"})
		if strings.Count(log, "role hook is not run: the name of the instance") != 1 {
			t.Errorf(`%q: got %s, want "role hook is not run: the name of the instance" once in log`,
				name, log)
		}
	}
	if got, err := os.ReadFile(out); err == nil {
		t.Errorf("the hook was run with an unsafe name: %s", got)
	}
	var many []RoleChange
	for i := range 3 * maxRefused {
		many = append(many, RoleChange{fmt.Sprintf("-%d", i), "MASTER", "0.0.0.0"})
	}
	if n := strings.Count(runHook(t, file, false, many...), "not run"); n != maxRefused {
		t.Errorf("%d names are logged, and kept", n)
	}
}

// TestBackground checks that a process that a run leaves in the background is no failure, and can
// print more than a pipe holds. The part that is read is bounded.
func TestBackground(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := writeScript(t, 0o755, "(read x < "+dir+"/go; head -c 200000 /dev/zero && echo more && touch "+dir+"/$1) &\necho done\n")
	if err := syscall.Mkfifo(dir+"/go", 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	h := NewRoleHook(file, false, slog.New(slog.NewTextHandler(&log, nil)))
	run := func(name string) {
		h.run(t.Context(), RoleChange{name, "MASTER", "0.0.0.0"})
		if err := os.WriteFile(dir+"/go", []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
		awaitFile(t, filepath.Join(dir, name)) // the background process has finished
	}
	run("a")
	await.True(t, 20*time.Second, "its output is read", func() bool { return h.backlog.Load() == 0 })
	h.backlog.Store(maxBackground)
	run("b")
	if got := log.String(); strings.Count(got, "role hook was run") != 2 || strings.Count(got, "output=done") != 1 || strings.Contains(got, "failed") {
		t.Errorf(`got %v, want "role hook was run" twice in got, `+
			`"output=done" once in got, no "failed" in got`,
			got)
	}
}

// TestLinks checks that symbolic links are followed, and that permissions of every folder and link
// on the way are checked.
func TestLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := writeScript(t, 0o755, "exit 0\n")
	const nobody = 65534
	give := func(path string) {
		t.Helper()
		if err := os.Lchown(path, nobody, nobody); err != nil {
			t.Skip("only root may give files away")
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"foreign/below", "loose/below", "sticky"} {
		if err := os.MkdirAll(at(name), 0o755); err != nil { //nolint:gosec // the mode of folders for programs
			t.Fatal(err)
		}
	}
	give(at("foreign"))
	for name, mode := range map[string]os.FileMode{"loose": 0o777, "sticky": 0o777 | os.ModeSticky} {
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{
		"good": program, "relative": "sticky/../good", "sticky/good": "../relative", "loop": "loop", "foreign/below/link": program, "loose/below/link": program,
		"chain": "foreign/below/link", "given": program, "gone": "nothing",
	}
	for name, target := range links {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	give(at("given"))
	copied := at("foreign/below/hook")
	if err := os.WriteFile(copied, []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	for _, name := range []string{"good", "relative", "sticky/good"} {
		if got, err := resolveRootOwned(at(name)); err != nil || got != program {
			t.Errorf("%s: got %s, %v, want no error, %s", name, got, err, program)
		}
	}
	for name, want := range map[string]string{
		"loop": "has more than 40 symbolic links", "foreign/below/link": "foreign is not owned by root", "foreign/below/hook": "foreign is not owned by root",
		"loose/below/link": "loose: chmod go-w", "chain": "foreign is not owned by root", "given": "given is not owned by root", "gone": "no such file",
	} {
		if got, err := resolveRootOwned(at(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}
