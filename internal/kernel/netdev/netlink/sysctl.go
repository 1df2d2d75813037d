package netlink

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysctl reads a number. name is a path below /proc/sys/net, whose content depends on the namespace
// of the thread that opens it.
func (n *Namespace) Sysctl(name string) (int, error) {
	var value int
	err := n.Do(func() error {
		b, err := os.ReadFile("/proc/sys/net/" + name)
		if err != nil {
			return err
		}
		value, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err
	})
	return value, err
}

// SetSysctl sets a setting of the namespace, as WriteSysctl does.
func (n *Namespace) SetSysctl(name string, value int) error {
	return n.Do(func() error { return WriteSysctl(name, value) })
}

// WriteSysctl sets a sysctl of the thread's network namespace. name is a path below /proc/sys/net.
//
// In an unprivileged container /proc/sys is read-only, even with the right to change settings. Then
// it writes through a detached mount of /proc, which CAP_SYS_ADMIN allows.
func WriteSysctl(name string, value int) error {
	text := []byte(strconv.Itoa(value))
	err := os.WriteFile("/proc/sys/net/"+name, text, 0o644)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	proc, mountErr := detachedProc()
	if mountErr != nil {
		return fmt.Errorf("%w, and there is no other /proc: %w", err, mountErr)
	}
	defer unix.Close(proc)
	fd, mountErr := unix.Openat(proc, "sys/net/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if mountErr != nil {
		return fmt.Errorf("%w, and in another /proc: %w", err, mountErr)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// detachedProc opens a new /proc that is mounted nowhere.
func detachedProc() (int, error) {
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
