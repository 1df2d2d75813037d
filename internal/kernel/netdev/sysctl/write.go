package sysctl

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Write sets a setting of the thread's network namespace. name is a path below /proc/sys/net.
//
// In a container that is not privileged /proc/sys is read-only, whatever the daemon may do: it
// writes through a /proc of its own then, which is mounted nowhere, as CAP_SYS_ADMIN lets it.
func Write(name string, value int) error {
	text := []byte(strconv.Itoa(value))
	err := os.WriteFile("/proc/sys/net/"+name, text, 0o644)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	proc, own := ownProc()
	if own != nil {
		return fmt.Errorf("%w, and there is no other /proc: %w", err, own)
	}
	defer unix.Close(proc)
	fd, own := unix.Openat(proc, "sys/net/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if own != nil {
		return fmt.Errorf("%w, and in another /proc: %w", err, own)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// ownProc opens a /proc that is mounted nowhere.
func ownProc() (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}
