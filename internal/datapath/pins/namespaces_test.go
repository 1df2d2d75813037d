package pins

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// checkNamespaces is the first process of a PID namespace: all network namespaces that its processes keep alive are its
// doing. It prints those that were made, and those that were found.
func checkNamespaces() {
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""),
	)
	if err != nil {
		fmt.Println("set up:", err)
		return
	}
	own, err := Cookie()
	made := map[uint64]bool{own: true}
	add := func(keep func() error) error {
		return onThread(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			cookie, err := Cookie()
			made[cookie] = true
			return errors.Join(err, keep())
		})
	}
	bound := filepath.Join("/tmp", "a name with blanks")
	var open *os.File
	err = errors.Join(err,
		os.WriteFile(bound, nil, 0o600),
		add(func() error { return unix.Mount("/proc/thread-self/ns/net", bound, "", unix.MS_BIND, "") }),
		add(func() (err error) {
			open, err = os.Open("/proc/thread-self/ns/net")
			return err
		}),
	)
	entered := make(chan error)
	over := make(chan struct{})
	go func() {
		_ = add(func() error {
			entered <- nil
			<-over
			return nil
		})
	}()
	err = errors.Join(err, <-entered)
	found, err2 := visibleCookies()
	close(over)
	if err := errors.Join(err, err2, open.Close(), unix.Unmount(bound, unix.MNT_DETACH)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(slices.Sorted(maps.Keys(made)), len(made))
	fmt.Println(slices.Sorted(maps.Keys(found)), len(found))
}

// TestVisibleCookies: a namespace is found that only a thread, a bind mount or an open file keeps alive.
func TestVisibleCookies(t *testing.T) {
	t.Parallel()
	out, err := process(syscall.CLONE_NEWNS|syscall.CLONE_NEWPID, "LOXILB_TEST_PROCESS=namespaces").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || lines[0] != lines[1] || !strings.HasSuffix(lines[0], " 4") {
		t.Errorf("made and found: %s", out)
	}
}
