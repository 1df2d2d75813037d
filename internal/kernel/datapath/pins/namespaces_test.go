package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// checkNamespaces is the first process of a PID namespace, so it can examine all processes. It
// prints the network namespaces that it keeps alive and does not find, and whether it finds one
// that nothing keeps alive.
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
	made := []uint64{own}
	add := func(keep func() error) error {
		return onThread(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			cookie, err := Cookie()
			made = append(made, cookie)
			return errors.Join(err, keep())
		})
	}
	err = errors.Join(err, add(func() error { return nil }))
	gone := made[1]
	made = slices.Delete(made, 1, 2)
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
	var found map[uint64]bool
	for end := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(end); { // until its thread has ended
		if found, err = visibleCookies(); !found[gone] {
			break
		}
	}
	close(over)
	if err := errors.Join(err, open.Close(), unix.Unmount(bound, unix.MNT_DETACH)); err != nil {
		fmt.Println(err)
		return
	}
	missing := slices.DeleteFunc(slices.Clone(made), func(cookie uint64) bool { return found[cookie] })
	fmt.Println(len(made), "made, not found:", missing, "gone, but found:", found[gone])
}

// TestVisibleCookies checks that a namespace is found that only a thread, a bind mount or an open
// file keeps alive.
func TestVisibleCookies(t *testing.T) {
	t.Parallel()
	out, err := process(syscall.CLONE_NEWNS|syscall.CLONE_NEWPID, "LOXILB_TEST_PROCESS=namespaces")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out != "4 made, not found: [] gone, but found: false" {
		t.Errorf(`got %v, want "4 made, not found: [] gone, but found: false"`, out)
	}
}
