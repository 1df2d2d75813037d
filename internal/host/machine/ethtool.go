package machine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ethtool sends a command of ethtool that has one value to an interface in the network namespace of
// the thread. It returns the value of the answer.
func Ethtool(link string, command, value uint32) (uint32, error) {
	if len(link) >= unix.IFNAMSIZ {
		return 0, errors.New("not an interface name")
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	v := struct{ command, value uint32 }{command, value}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		rest [16]byte
	}
	copy(request.name[:], link)
	request.data = unsafe.Pointer(&v)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, fmt.Errorf("ethtool %s: %w", link, errno)
	}
	return v.value, nil
}
