package netdev

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadOnly checks that settings can be written where /proc/sys is read-only, as in containers.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespaces
		done <- writeReadOnly()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func writeReadOnly() error {
	const name = "ipv4/conf/lo/forwarding"
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""),
		unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
	); err != nil {
		return fmt.Errorf("make /proc/sys read-only: %w", err)
	}
	if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("the sysctl is not read-only: %w", err)
	}
	for _, want := range []string{"0", "1", "0"} {
		if err := WriteSysctl(name, int(want[0]-'0')); err != nil {
			return err
		}
		if got, err := os.ReadFile("/proc/sys/net/" + name); err != nil || string(got) != want+"\n" {
			return fmt.Errorf("the sysctl is %q, want %s: %w", got, want, err)
		}
	}
	return nil
}
