package files

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// saved returns the files of a folder with one line, for replaceFolder.
func saved(line string) interfaceConfig {
	return interfaceConfig{"eth0": {"type": {line}}}
}

// TestReplaceFolderKeepsPrevious checks that the previous configuration is never lost, even if the
// previous backup cannot be removed, or the folder cannot be moved.
func TestReplaceFolderKeepsPrevious(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // never unlocked: the thread has its own mounts, and ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); errors.Is(err, unix.EPERM) {
		t.Skip("only root can mount")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ipconfig")
	content := func(at string) string {
		data, err := os.ReadFile(filepath.Join(at, "eth0", "type"))
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(data))
	}
	for _, line := range []string{"first", "second"} {
		if err := replaceFolder(path, saved(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("none", filepath.Join(path+".bk", "eth0"), "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	err := replaceFolder(path, saved("third"))
	if err == nil || !strings.Contains(err.Error(), path+" is saved, with a backup in "+path+".bk; an older backup remains in") {
		t.Errorf("a mount in the backup: %v", err)
	}
	if content(path) != "third" || content(path+".bk") != "second" {
		t.Errorf("the folder has %q and %q", content(path), content(path+".bk"))
	}
	leftovers, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".save-*"))
	if err != nil || len(leftovers) != 1 {
		t.Fatalf("the remaining files are %v, %v", leftovers, err)
	}
	if err := errors.Join(unix.Unmount(filepath.Join(leftovers[0], "eth0"), 0), os.RemoveAll(leftovers[0])); err != nil {
		t.Fatal(err)
	}

	if err := unix.Mount(path+".bk", path+".bk", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := replaceFolder(path, saved("fourth")); err == nil || !strings.Contains(err.Error(), path+" is unchanged") {
		t.Errorf("the backup is a mount: %v", err)
	}
	if err := unix.Unmount(path+".bk", 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := replaceFolder(path, saved("fifth")); err == nil || !strings.Contains(err.Error(), path+" is unchanged") {
		t.Errorf("the folder is a mount: %v", err)
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	if content(path) != "third" || content(path+".bk") != "second" {
		t.Errorf("the folder has %q and %q", content(path), content(path+".bk"))
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 2 {
		t.Errorf("got %v, %v, want no error, 2 elements", list, err)
	}
}
