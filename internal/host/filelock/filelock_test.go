package filelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LOXILB_TEST_LOCK"); path != "" {
		holdLock(path)
		return
	}
	os.Exit(m.Run())
}

// holdLock opens a file like any user, locks it, and holds the lock until its standard input ends.
func holdLock(path string) {
	f, err := os.Open(path)
	if err == nil {
		err = Try(f)
	}
	fmt.Println(err)
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// asNobody runs holdLock as a user without privileges, and returns its first line.
func asNobody(t *testing.T, path string) (pid int, line string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("another user can only be made by root")
	}
	binary := filepath.Join(openDir(t), "test")
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock() // a child process of a parallel test must not inherit the open file
	err = os.WriteFile(binary, data, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "LOXILB_TEST_LOCK="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, _ = bufio.NewReader(out).ReadString('\n')
	return cmd.Process.Pid, strings.TrimSpace(line)
}

// openDir creates a directory that every user can enter and read.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "filelock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func anyNames([]string) bool { return true }

// TestSharedDirectoryStays checks that a directory with files of others stays open to them, and is
// not locked.
func TestSharedDirectoryStays(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	if err := os.WriteFile(filepath.Join(dir, "passwd"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // of a test
	shared := (*SharedError)(nil)
	if err := TryDir(d, func(names []string) bool { return names[0] != "passwd" }); !errors.As(err, &shared) {
		t.Errorf("a shared directory is locked: %v", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode is changed: %v, %v", info.Mode(), err)
	}
	if pid, line := asNobody(t, dir); line != "<nil>" {
		t.Errorf("process %d of another user: %s", pid, line)
	}
}

// TestOthersCannotLock checks that another user cannot lock what this package locks.
func TestOthersCannotLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(openDir(t), "lock")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // of a test
	if _, line := asNobody(t, path); !strings.Contains(line, "permission denied") {
		t.Errorf("another user opens the lock file: %s", line)
	}
	if err := Try(f); err != nil {
		t.Error(err)
	}

	dir := openDir(t)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // of a test
	if err := TryDir(d, anyNames); err != nil {
		t.Error(err)
	}
	if _, line := asNobody(t, dir); !strings.Contains(line, "permission denied") {
		t.Errorf("another user opens the directory: %s", line)
	}
}

// TestHolderIsNamed checks that a held lock is awaited until the deadline, and that the error names
// its holder.
func TestHolderIsNamed(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	pid, line := asNobody(t, dir)
	if line != "<nil>" {
		t.Fatalf(`got %v, want "<nil>"`, line)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // of a test
	ctx, cancel := context.WithTimeout(t.Context(), 3*retryInterval)
	defer cancel()
	begun := time.Now()
	for name, err := range map[string]error{"TryDir": TryDir(d, anyNames), "Wait": Wait(ctx, d)} {
		held := (*HeldError)(nil)
		if !errors.As(err, &held) || held.PID != pid || !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("%s: %v, the holder is %d", name, err, pid)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%s is locked by process %d (", dir, pid)) {
			t.Errorf("%s: got %v, want no error, or that process %d has locked %s", name, err, pid, dir)
		}
	}
	if time.Since(begun) > time.Minute {
		t.Error("the deadline did not end the wait")
	}
}

// TestOpenFollowsNoLink checks that a symbolic link in place of the lock file is refused.
func TestOpenFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(filepath.Join(dir, "lock")); err == nil {
		t.Error("followed", f.Close())
	}
}
