package pins

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// holdLock locks a directory until it is killed.
func holdLock() {
	if _, err := Acquire(os.Getenv("LOXILB_TEST_LOCK")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// TestLock checks that one process holds a pin directory, and that the error of another one names
// the holder. A killed process leaves no lock.
func TestLock(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(scratch(t), "a", "b")
	if _, err := AcquireExisting(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock of no directory: %v", err)
	}
	first := exec.Command(os.Args[0])
	first.Env = append(os.Environ(), "LOXILB_TEST_PROCESS=lock", "LOXILB_TEST_LOCK="+dir)
	if _, err := first.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = first.Process.Kill()
			_ = first.Wait()
		}
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the first process prints %q, %v", line, err)
	}

	_, err = Acquire(dir)
	inUse := (*InUseError)(nil)
	if !errors.As(err, &inUse) || inUse.PID != first.Process.Pid {
		t.Errorf("the second reports %v, the first is %d", err, first.Process.Pid)
	}
	if want := fmt.Sprintf("in use by process %d", first.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not contain %q", err, want)
	}

	// A process that removed and recreated the directory holds the new one, whoever holds a
	// lock of the old one.
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	again, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
	end()
	last, err := Acquire(dir)
	if err != nil {
		t.Fatalf("after the first was killed: %v", err)
	}
	if err := last.Release(); err != nil {
		t.Error(err)
	}
}

// TestSharedPinDirectory checks that a directory that is open to others and has their pins is
// refused, and not changed.
func TestSharedPinDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(scratch(t), "shared")
	for _, d := range []string{dir, filepath.Join(dir, "cilium")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Acquire(dir); err == nil || !strings.Contains(err.Error(), "open to other users") {
		t.Errorf(`got %v, want an error, "open to other users" in the error`, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the mode is changed: %v, %v", info.Mode(), err)
	}
	if err := os.Remove(filepath.Join(dir, "cilium")); err != nil {
		t.Fatal(err)
	}
	lock, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release() //nolint:errcheck // of a test
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others can lock it: %v, %v", info.Mode(), err)
	}
}
